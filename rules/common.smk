# What the stages share: the checked settings, the device, and helpers for inputs.
import os
import sys
from pathlib import Path

sys.path.insert(0, workflow.basedir)  # the libraries lie beside the Snakefile

from contract import LaunchgapError
from snakemake.exceptions import WorkflowError
from nsight.gpu import find_gpu
from nsight.preflight import host_fingerprint
from rules import settings

settings.prepare_environment(workflow.basedir)

SCHEMA = Path(workflow.basedir, "config/config.schema.yaml")
TABLES = ["requests", "launches", "kernels", "comparison"]
# What explains them; a table without rows could not be made, and explained.json says why.
TABLES += ["ledger", "host_ledger", "kernel_match", "escaped", "graph_cost", "blockers"]
TABLES += ["prediction", "prediction_summary", "scores"]


def check_and_choose_device():
    """The device that the rules run on, cuda or cpu; stops on a bad setting, before it can mislead."""
    check_again()
    if config["device"] != "auto":
        return config["device"]
    gpu = find_gpu(os.environ)
    if not gpu.usable:
        tell(f"{gpu.problem}, so the simulation runs with config/cpu.yaml on top")
    return "cuda" if gpu.usable else "cpu"


def check_again():
    """Check settings and output folders; a bad one ends Snakemake with one line instead of a traceback."""
    try:
        settings.check_folders(["results", "profiles/nsys", "profiles/torch", "logs"])
        settings.check_config(config, SCHEMA)
    except LaunchgapError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def tell(message):
    """One line on stderr, once per run."""
    if workflow.is_main_process:
        print(f"launchgap: {message}", file=sys.stderr)


def project(path):
    """Path of a file of the project, seen from the work folder, so that a moved project runs nothing again."""
    return os.path.relpath(Path(workflow.basedir, path))


def sources(*patterns):
    """Python files behind a `python -m`: Snakemake sees edits of them only if they are inputs."""
    return [project(path) for pattern in patterns for path in sorted(Path(workflow.basedir).glob(pattern))]


def all_cores():
    """Threads of a job that nothing may run beside, because it takes times."""
    return workflow.resource_settings.cores or 1  # workflow.cores is an error where --cores is not needed


wildcard_constraints:
    case=r"[A-Za-z0-9._-]+",
    strategy="[a-z_]+",
    mode="node|graph",


def case_arguments(name):
    """Command-line arguments that say which case to run, the same for measuring and tracing."""
    case = CASES[name]
    options = ["model", "dtype", "prompt_length", "max_length", "attn_implementation"]
    options += ["phase"] if "phase" in case else []
    arguments = [f"--{option.replace('_', '-')}={case[option]}" for option in options]
    return [
        *arguments,
        f"--device={DEVICE}",
        f"--weights={config['weights']}",
        f"--seed={config['seed']}",
    ]


def traced_program(strategy):
    """The NVTX-annotated executable of a strategy, as arguments of `python -m`."""
    return (
        ["scripts.run_baseline"] if strategy == "eager" else ["scripts.run_graph", f"--strategy={strategy}"]
    )


def strategies(case):
    """Strategies to measure of a case."""
    return settings.strategies_of(config, CASES[case], "strategies")


def traced_strategies(case):
    """Strategies to trace of a case."""
    return settings.strategies_of(config, CASES[case], "traced_strategies")


def trace_names(case):
    """Traces to make of a case, known once this host was looked at and the case was measured."""
    preflight = checkpoints.preflight.get().output[0]
    latency = checkpoints.measure.get(case=case).output.record
    try:
        return settings.wanted_traces(traced_strategies(case), Path(preflight), Path(latency))
    except LaunchgapError as error:
        raise WorkflowError(str(error)) from None


def traces_of(case):
    """Files of the traces to analyse, by whichever tracer works on this host."""
    names = trace_names(case)
    return settings.trace_files(settings.tracer(Path(checkpoints.preflight.get().output[0])), case, names)


def calibration_file():
    """The calibration to predict with, made on this host or named by the user; none where that is not to be.

    Without one the analysis takes the record that is shipped.
    """
    chosen = settings.calibration(config, DEVICE)
    return [] if chosen is None else [chosen]


def shipped_calibrations():
    """The records that the analysis falls back on."""
    return [project(path) for path in sorted(Path(workflow.basedir, "profiles/calibration").glob("*.json"))]


def kept_files_of(case):
    """All files that tracing a case leaves, those that only a reader opens as well."""
    traces = traces_of(case)
    reports = [path.removesuffix(".sqlite") + ".nsys-rep" for path in traces if path.endswith(".sqlite")]
    return [*traces, *reports, *(records_of(case) if traces else [])]


def records_of(case):
    """What the analysis writes beside the tables of a case."""
    return [f"results/tables/{case}/{name}.json" for name in ("traces", "explained", "timeline")]


def tables_of(cases):
    """Tables of the cases that can be traced; the report is made without those of the others."""
    return expand(rules.analyse.output.tables, case=[case for case in cases if trace_names(case)])
