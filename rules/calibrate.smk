# What launching costs on this GPU, for the predictions; only with the setting `calibration: measure`.


rule calibrate:
    input:
        sources(
            "contract/*.py",
            "commandline.py",
            "inference/calibration*.py",
            "scripts/calibrate.py",
            "scripts/_cli.py",
            "scripts/_arguments.py",
        ),
    output:
        settings.MEASURED_CALIBRATION,
    log:
        "logs/calibrate.log",
    conda:
        "../envs/launchgap.yaml"
    threads: all_cores()
    resources:
        gpu=1,
    message:
        "Measuring what launches cost on this GPU"
    shell:
        "python -m scripts.calibrate --output {output:q} > {log:q} 2>&1"
