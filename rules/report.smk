# One page for everything that was measured and traced.


rule report:
    input:
        *each_case(counted),
        latency=expand("results/latency/{case}/latency.json", case=CASES),
        preflight="results/preflight.json",
    output:
        html=report("results/report.html", caption="captions/report.rst", category="Report"),
        markdown="results/report.md",
        record="results/report.json",
        figures=report(
            directory("results/figures"),
            patterns=["{name}.svg"],
            caption="captions/figures.rst",
            category="Figures",
            labels={"figure": "{name}"},
        ),
    log:
        "logs/report.log",
    conda:
        "../envs/launchgap.yaml"
    params:
        code=code(
            "contract/*.py",
            "commandline.py",
            "analysis/*.py",
            "analysis/*/*",
            "scripts/build_report.py",
            "scripts/_cli.py",
            "scripts/_arguments.py",
        ),
        options=report_options(),
        folder=subpath(output.html, parent=True),
    message:
        "Writing {output.html}"
    shell:
        "exec python -m scripts.build_report {params.options:q} -o {params.folder:q} > {log:q} 2>&1"


# The same of a run that was stopped: of the cases that are whole, and nothing more is run. It has no output, so the
# next run knows nothing of it; older than all it is made of, its report is then made again.
rule so_far:
    log:
        "logs/report.log",
    conda:
        "../envs/launchgap.yaml"
    params:
        options=report_options(),
        so_far=lambda wildcards: so_far_options(),
    message:
        "Writing results/report.html of the cases that are whole"
    shell:
        "python -m scripts.build_report {params.options:q} {params.so_far:q} -o results > {log:q} 2>&1"
        " && touch -d @1 results/report.json"
