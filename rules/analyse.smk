# Kernels, launches and durations per request, and what explains them, as tables.


rule analyse:
    input:
        traces=lambda wildcards: traces_of(wildcards.case),
        preflight="results/preflight.json",
        latency="results/latency/{case}/latency.json",
        calibration=calibration_file(),
        shipped=shipped_calibrations(),
    output:
        tables=report(
            expand("results/tables/{{case}}/{table}.csv", table=TABLES),
            caption="captions/tables.rst",
            category="Tables",
            subcategory="{case}",
        ),
        record="results/tables/{case}/traces.json",
        explained="results/tables/{case}/explained.json",
        timeline="results/tables/{case}/timeline.json",
    log:
        "logs/analyse/{case}.log",
    priority: lambda wildcards: in_order(wildcards.case)
    conda:
        "../envs/launchgap.yaml"
    params:
        code=code(
            "contract/*.py",
            "commandline.py",
            "analysis/*.py",
            "scripts/analyse_traces.py",
            "scripts/_cli.py",
            "scripts/_arguments.py",
        ),
        options=lambda wildcards, input: [
            f"--trace-dir={Path(input.traces[0]).parent}",
            f"--preflight={input.preflight}",
            f"--latency={input.latency}",
            *(f"--calibration={path}" for path in input.calibration),
            "--strategies",
            *traced_strategies(wildcards.case),
        ],
        folder=subpath(output.record, parent=True),
    message:
        "Counting kernels and launches of {wildcards.case}"
    shell:
        "exec python -m scripts.analyse_traces --case {wildcards.case:q} {params.options:q} -o {params.folder:q}"
        " > {log:q} 2>&1"
