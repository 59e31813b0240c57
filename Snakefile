# launchgap's pipeline: measure without a profiler, trace under Nsight Systems or torch.profiler, count, report.
#
#   preflight   what can this host do?                  results/preflight.json
#   measure     latency, unprofiled, one run per case   results/latency/CASE/
#   capture     one nsys run per trace                  profiles/nsys/CASE/STRATEGY.MODE.*
#               without nsys: torch.profiler            profiles/torch/CASE/STRATEGY.node.*
#   calibrate   what launches cost, if it is asked for  results/calibration.json
#   analyse     kernels and launches per request        results/tables/CASE/
#   report      one page                                results/report.html, .md, .json
#
#   snakemake --cores 1                            everything that config/config.yaml asks for
#   snakemake --cores 1 --configfile config/sweep.yaml   many cases (docs/sweeps.md); --dry-run: the plan
#   snakemake --cores 1 --config profiler=off      latency only
#   snakemake --cores 1 --config profiler=torch    traces by torch.profiler
#   snakemake --cores 1 so_far                     the report of a run that was stopped: nothing more is run
#   snakemake --cores 1 reference                  the example report, from the committed traces


configfile: f"{workflow.basedir}/config/config.yaml"


include: "rules/common.smk"


DEVICE = check_and_choose_device()
if DEVICE == "cpu":

    configfile: f"{workflow.basedir}/config/cpu.yaml"

    check_again()


include: "rules/ending.smk"


CASES = settings.cases(config)
SETTINGS = settings.settings_by_case(config)
check_gpus()


include: "rules/measure.smk"
include: "rules/calibrate.smk"
include: "rules/capture.smk"
include: "rules/capture_torch.smk"
include: "rules/analyse.smk"
include: "rules/report.smk"
include: "rules/reference.smk"


localrules:
    all,
    so_far,
    reference,


rule all:
    default_target: True
    input:
        rules.report.output,
        # A report that exists asks neither for a case added later nor for any other file that was lost.
        expand("results/latency/{case}/{file}", case=CASES, file=["latency.json", "latency_comparison.png"]),
        *each_case(files_of),


onstart:
    keep_quiet_while_measuring()


onsuccess:
    FAILURES_FILE.unlink(missing_ok=True)


onerror:
    report_failures()
    tell(how_to_go_on())
