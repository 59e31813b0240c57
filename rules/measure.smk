# What can this host do, and how long does a forward pass take without a profiler?


checkpoint preflight:
    input:
        sources(
            "contract/*.py",
            "commandline.py",
            "nsight/*.py",
            "scripts/preflight.py",
            "scripts/_cli.py",
            "scripts/_arguments.py",
        ),
    output:
        "results/preflight.json",
    log:
        "logs/preflight.log",
    conda:
        "../envs/launchgap.yaml"
    params:
        device=config["device"],
        profiler=settings.profiler(config),
        # Installing nsys later, or another nvtx, makes this run again.
        host=host_fingerprint(os.environ) | {"device": DEVICE},
    message:
        "Looking at this host: is there a GPU, does nsys work?"
    shell:
        "python -m scripts.preflight --device {params.device:q} --profiler {params.profiler:q} --output {output:q}"
        " > {log:q} 2>&1"


checkpoint measure:
    input:
        # Finding another nsys is no reason to measure again.
        ancient("results/preflight.json"),
        sources(
            "contract/*.py",
            "commandline.py",
            "inference/*.py",
            "scripts/cuda_graph_benchmark.py",
            "scripts/_*.py",
        ),
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
    conda:
        "../envs/launchgap.yaml"
    threads: all_cores()
    resources:
        gpu=1,
    params:
        folder=subpath(output.record, parent=True),
        case=lambda wildcards: case_arguments(wildcards.case),
        strategies=lambda wildcards: strategies(wildcards.case),
        runs=config["runs"],
        warmup_s=config["warmup_s"],
    message:
        "Measuring {wildcards.case} without a profiler"
    shell:
        "python -m scripts.cuda_graph_benchmark {params.case:q} --strategies {params.strategies:q}"
        " --runs {params.runs:q} --warmup-s {params.warmup_s:q} --allow-partial --output-dir {params.folder:q}"
        " > {log:q} 2>&1"
