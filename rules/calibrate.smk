# What launching costs on this GPU, for the predictions; only with the setting `calibration: measure`.


rule calibrate:
    output:
        settings.MEASURED_CALIBRATION,
    log:
        "logs/calibrate.log",
    priority: order.before_all(list(CASES))
    conda:
        "../envs/launchgap.yaml"
    threads: timed_threads()
    resources:
        gpu=1,
    params:
        code=code(
            "contract/*.py",
            "commandline.py",
            "inference/calibration*.py",
            "scripts/calibrate.py",
            "scripts/_cli.py",
            "scripts/_arguments.py",
        ),
        on_gpu=on_gpu(),
    message:
        "Measuring what launches cost on this GPU"
    shell:
        "exec {params.on_gpu:q} python -m scripts.calibrate --output {output:q} > {log:q} 2>&1"
