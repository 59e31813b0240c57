# One nsys run per trace: the report, its SQLite export and the program's record, all three or none.


rule capture:
    input:
        ancient("results/preflight.json"),
        sources(
            "contract/*.py",
            "commandline.py",
            "inference/*.py",
            "nsight/*.py",
            "scripts/capture_trace.py",
            "scripts/run_*.py",
        ),
        sources("scripts/_*.py"),
    output:
        multiext("profiles/nsys/{case}/{strategy}.{mode}", ".nsys-rep", ".sqlite", ".json"),
    log:
        "logs/capture/{case}/{strategy}.{mode}.log",
    conda:
        "../envs/launchgap.yaml"
    threads: all_cores()
    resources:
        gpu=1,
    params:
        stem="profiles/nsys/{case}/{strategy}.{mode}",
        device=DEVICE,
        timeout_s=config["capture_timeout_s"],
        program=lambda wildcards: traced_program(wildcards.strategy),
        case=lambda wildcards: case_arguments(wildcards.case),
        requests=config["traced_requests"],
    message:
        "Tracing {wildcards.case}: {wildcards.strategy}, {wildcards.mode} mode"
    # exec makes Snakemake the starter: a capture whose Snakemake was killed must not go on beside its redo.
    shell:
        "exec python -m scripts.capture_trace --output {params.stem:q} --trace-mode {wildcards.mode:q}"
        " --device {params.device:q} --timeout-s {params.timeout_s:q} --end-with-starter --"
        " python -m {params.program:q} {params.case:q} --requests {params.requests:q}"
        " > {log:q} 2>&1"
