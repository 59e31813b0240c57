# Where nsys cannot be installed: one run under torch.profiler per trace, its Chrome trace and its record.


rule capture_torch:
    input:
        ancient("results/preflight.json"),
    output:
        multiext("profiles/torch/{case}/{strategy}.node", ".json.gz", ".json"),
    log:
        "logs/capture_torch/{case}/{strategy}.node.log",
    priority: lambda wildcards: in_order(wildcards.case, wildcards.strategy)
    conda:
        "../envs/launchgap.yaml"
    threads: timed_threads()
    resources:
        gpu=1,
    params:
        code=code("contract/*.py", "commandline.py", "inference/*.py", "scripts/run_*.py", "scripts/_*.py"),
        stem="profiles/torch/{case}/{strategy}.node",
        timeout_s=lambda wildcards: SETTINGS[wildcards.case]["capture_timeout_s"],
        program=lambda wildcards: traced_program(wildcards.strategy),
        case=lambda wildcards: case_arguments(wildcards.case),
        requests=lambda wildcards: SETTINGS[wildcards.case]["traced_requests"],
        on_gpu=on_gpu(),
    message:
        "Tracing {wildcards.case}: {wildcards.strategy}, by torch.profiler"
    shell:
        "exec {params.on_gpu:q} timeout --verbose --foreground --kill-after=10 {params.timeout_s:q}"
        " python -m {params.program:q} {params.case:q} --requests {params.requests:q} --tracer torch"
        " --trace {params.stem:q}.json.gz --record {params.stem:q}.json > {log:q} 2>&1"
