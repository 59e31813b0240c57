# The example report, rebuilt from the committed traces by the same rules: needs no GPU and no nsys.
REFERENCE = project("profiles/reference")
REFERENCE_CASES = sorted(path.parent.name for path in Path(REFERENCE).glob("*/latency.json"))


use rule analyse as analyse_reference with:
    input:
        traces=lambda wildcards: sorted(map(str, Path(REFERENCE, wildcards.case).glob("*.*.*"))),
        latency=f"{REFERENCE}/{{case}}/latency.json",
        shipped=shipped_calibrations(),
    output:
        tables=expand("results/reference/tables/{{case}}/{table}.csv", table=TABLES),
        record="results/reference/tables/{case}/traces.json",
        explained="results/reference/tables/{case}/explained.json",
        timeline="results/reference/tables/{case}/timeline.json",
    log:
        "logs/reference/analyse/{case}.log",
    params:
        code=rules.analyse.params.code,
        options=lambda wildcards, input: [
            f"--trace-dir={REFERENCE}/{wildcards.case}",
            f"--latency={input.latency}",
        ],
        folder=subpath(output.record, parent=True),


use rule report as report_reference with:
    input:
        latency=expand(f"{REFERENCE}/{{case}}/latency.json", case=REFERENCE_CASES),
        tables=expand("results/reference/tables/{case}/{table}.csv", case=REFERENCE_CASES, table=TABLES),
    output:
        html="results/reference/report.html",
        markdown="results/reference/report.md",
        record="results/reference/report.json",
        figures=directory("results/reference/figures"),
    log:
        "logs/reference/report.log",
    params:
        code=rules.report.params.code,
        options=[
            f"--latency-dir={REFERENCE}",
            "--tables-dir=results/reference/tables",
            "--cases",
            *REFERENCE_CASES,
        ],
        folder=subpath(output.html, parent=True),


rule reference:
    input:
        rules.report_reference.output.html,
