# What can this host do, and how long does a forward pass take without a profiler?


checkpoint preflight:
    output:
        "results/preflight.json",
    log:
        "logs/preflight.log",
    conda:
        "../envs/launchgap.yaml"
    params:
        code=code(
            "contract/*.py",
            "commandline.py",
            "nsight/*.py",
            "scripts/preflight.py",
            "scripts/_cli.py",
            "scripts/_arguments.py",
        ),
        device=config["device"],
        profiler=settings.profiler(config),
        # Installing nsys later, or another nvtx, makes this run again.
        host=host_fingerprint(os.environ) | {"device": DEVICE},
    message:
        "Looking at this host: is there a GPU, does nsys work?"
    shell:
        "exec python -m scripts.preflight --device {params.device:q} --profiler {params.profiler:q} --output {output:q}"
        " > {log:q} 2>&1"


checkpoint measure:
    input:
        # Finding another nsys is no reason to measure again.
        ancient("results/preflight.json"),
    output:
        record="results/latency/{case}/latency.json",
        figure=report(
            "results/latency/{case}/latency_comparison.png",
            caption="captions/latency.rst",
            category="Latency",
            labels={"case": "{case}"},
        ),
    log:
        "logs/measure/{case}.log",
    priority: lambda wildcards: in_order(wildcards.case)
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
            "scripts/cuda_graph_benchmark.py",
            "scripts/_*.py",
        ),
        folder=subpath(output.record, parent=True),
        case=lambda wildcards: case_arguments(wildcards.case),
        strategies=lambda wildcards: strategies(wildcards.case),
        runs=lambda wildcards: SETTINGS[wildcards.case]["runs"],
        warmup_s=lambda wildcards: SETTINGS[wildcards.case]["warmup_s"],
        on_gpu=on_gpu(),
    message:
        "Measuring {wildcards.case} without a profiler"
    shell:
        "exec {params.on_gpu:q} python -m scripts.cuda_graph_benchmark {params.case:q} --strategies {params.strategies:q}"
        " --runs {params.runs:q} --warmup-s {params.warmup_s:q} --allow-partial --output-dir {params.folder:q}"
        " > {log:q} 2>&1"
