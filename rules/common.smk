# What the stages share: the checked settings, the device, and helpers for inputs.
import os
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, workflow.basedir)  # the libraries lie beside the Snakefile

from contract import LaunchgapError
from snakemake.exceptions import WorkflowError
from nsight.gpu import find_gpu
from nsight.lease import usable_devices
from nsight.preflight import host_fingerprint
from rules import order, settings
from rules.cluster import check_device
from rules.environment import prepare_environment
from rules.fingerprint import fingerprint

prepare_environment(workflow.basedir, os.environ)

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
        check_device(config["device"], workflow.resource_settings.nodes)
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


def code(*patterns):
    """The project's files behind a `python -m` in one word, as a parameter: an edit makes the rule run again."""
    return fingerprint(Path(workflow.basedir), *patterns)


def all_cores():
    """Cores that Snakemake may use."""
    return workflow.resource_settings.cores or 1  # workflow.cores is an error where --cores is not needed


def gpus():
    """GPUs to use side by side: `--resources gpu=N`, one where nothing is said and in the simulation."""
    given = workflow.global_resources.get("gpu")
    return max(int(given.value or 1), 1) if given is not None and DEVICE == "cuda" else 1


def timed_threads():
    """Threads of a job that takes times: all cores, or its share where each GPU has a job of its own.

    Nothing else may run beside it; on several GPUs nothing but its like and, on other cores, the tables of a case.
    """
    return max(all_cores() // gpus(), 1)


def keep_quiet_while_measuring():
    """Have Snakemake do nothing while a job of this host runs; what it does takes time from what is measured.

    Its limit of jobs a second, which a cluster needs, sets one more timer at every event: after a hundred jobs it
    looks through all that is to run a hundred times a second.
    """
    if workflow.local_exec:
        workflow.scheduler.job_rate_limiter = None


def on_gpu():
    """What is put before a command to give it a GPU that no other job of this user computes on."""
    return ["python", "-m", "scripts.on_gpu", "--end-with-starter", "--"] if DEVICE == "cuda" else []


def check_gpus():
    """Tell of GPUs asked for that this host has not: their jobs would wait for each other."""
    wanted = gpus()
    if wanted == 1:
        return
    there = len(usable_devices(os.environ))
    if there < wanted:
        tell(f"--resources gpu={wanted}: {there} can be used here, so jobs wait for each other")
    if all_cores() < wanted:
        tell(f"--cores {all_cores()}: too few for {wanted} GPUs, each job needs one; give more")


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
    flags = [option for option in ("trust_remote_code", "allow_pickle") if SETTINGS[name][option]]
    return [
        *arguments,
        *(f"--{flag.replace('_', '-')}" for flag in flags),
        f"--device={DEVICE}",
        f"--weights={SETTINGS[name]['weights']}",
        f"--seed={config['seed']}",
    ]


def traced_program(strategy):
    """The NVTX-annotated executable of a strategy, as arguments of `python -m`."""
    return (
        ["scripts.run_baseline"] if strategy == "eager" else ["scripts.run_graph", f"--strategy={strategy}"]
    )


def strategies(case):
    """Strategies to measure of a case."""
    return settings.strategies_of(SETTINGS[case], CASES[case], "strategies")


def traced_strategies(case):
    """Strategies to trace of a case."""
    return settings.strategies_of(SETTINGS[case], CASES[case], "traced_strategies")


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


def in_order(case, strategy=""):
    """The priority of a job of a case: see rules/order.py."""
    traced = traced_strategies(case) if strategy and case in CASES else ()
    return order.priority(list(CASES), case, traced, strategy)


def each_case(function):
    """An input function for each case: one that cannot be measured must not hide what the others need."""

    def of_case(case, wildcards):
        return function(case)

    return [partial(of_case, case) for case in CASES]


def files_of(case):
    """All files that tracing a case leaves, those that only a reader opens as well."""
    traces = traces_of(case)
    if not traces:
        return []
    reports = [path.removesuffix(".sqlite") + ".nsys-rep" for path in traces if path.endswith(".sqlite")]
    return [*traces, *reports, *expand(rules.analyse.output, case=case)]


def counted(case):
    """What says that a case was counted, of all that its analysis writes at once; none if it has no traces.

    The report is made without the tables of a case that cannot be traced.
    """
    return expand(rules.analyse.output.record, case=case) if trace_names(case) else []


def report_options():
    """What the report is made of, as arguments of scripts.build_report."""
    return [
        "--latency-dir=results/latency",
        "--tables-dir=results/tables",
        "--preflight=results/preflight.json",
        "--cases",
        *CASES,
    ]
