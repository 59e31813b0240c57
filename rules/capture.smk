# One nsys run per trace: the report, its SQLite export and the program's record, all three or none.


rule capture:
    input:
        ancient("results/preflight.json"),
    output:
        multiext("profiles/nsys/{case}/{strategy}.{mode}", ".nsys-rep", ".sqlite", ".json"),
    log:
        "logs/capture/{case}/{strategy}.{mode}.log",
    priority: lambda wildcards: in_order(wildcards.case, wildcards.strategy)
    conda:
        "../envs/launchgap.yaml"
    threads: timed_threads()
    resources:
        gpu=1,
    params:
        code=code(
            "contract/*.py",
            "commandline.py",
            "inference/*.py",
            "nsight/*.py",
            "scripts/capture_trace.py",
            "scripts/run_*.py",
            "scripts/_*.py",
        ),
        stem="profiles/nsys/{case}/{strategy}.{mode}",
        device=DEVICE,
        timeout_s=lambda wildcards: SETTINGS[wildcards.case]["capture_timeout_s"],
        program=lambda wildcards: traced_program(wildcards.strategy),
        case=lambda wildcards: case_arguments(wildcards.case),
        requests=lambda wildcards: SETTINGS[wildcards.case]["traced_requests"],
        on_gpu=on_gpu(),
    message:
        "Tracing {wildcards.case}: {wildcards.strategy}, {wildcards.mode} mode"
    # exec makes Snakemake the starter: a capture whose Snakemake was killed must not go on beside its redo.
    shell:
        "exec {params.on_gpu:q} python -m scripts.capture_trace --output {params.stem:q} --trace-mode {wildcards.mode:q}"
        " --device {params.device:q} --timeout-s {params.timeout_s:q} --end-with-starter --"
        " python -m {params.program:q} {params.case:q} --requests {params.requests:q}"
        " > {log:q} 2>&1"
