# What is told after a run: its failures, what is still to be run and, of a dry run, the plan.
import atexit
import functools
import json
import subprocess

from commandline import write_text_atomic
from nsight.install import find_nsys
from rules.failures import FAILURES_FILE, FailedJob, failed_cases, failures, failures_record, reason
from rules.plan import RECENT_NSYS, Plan, Step, expected_traces
from rules.unfinished import unfinished


def unfinished_cases():
    """Cases of which something is still to be run."""
    preflight = Path("results/preflight.json")
    return [
        case
        for case in CASES
        if unfinished(
            case,
            traced_strategies(case),
            preflight,
            Path("results/latency", case, "latency.json"),
            Path("results/tables", case, "traces.json"),
        )
    ]


def so_far_options():
    """Which cases are not whole, as arguments of scripts.build_report: those that failed with their reason."""
    if not any(Path("results/latency", case, "latency.json").exists() for case in CASES):
        print("error: so_far: no case was measured yet; start without it first", file=sys.stderr)
        sys.exit(2)
    cases = unfinished_cases()
    failed = failed_cases(FAILURES_FILE)
    # Of a case that was whole after all, an older record would hide the tables.
    options = [f"--failures={FAILURES_FILE}"] if failed and failed <= set(cases) else []
    return [*options, *(["--not-run", *cases] if cases else [])]


def failed_jobs():
    """The jobs that Snakemake gave up on."""
    jobs = [one for job in workflow.scheduler.failed for one in (job.jobs if job.is_group() else [job])]
    return [
        FailedJob(job.rule.name, job.wildcards_dict, Path(job.log[0]) if job.log else None) for job in jobs
    ]


def report_failures():
    """Say which cases failed and why, and make the report of the others."""
    # After Ctrl-C jobs still count as running. A job that was ended with the run has not failed.
    if workflow.scheduler._user_kill or workflow.scheduler.running:
        whole = len(CASES) - len(unfinished_cases())
        # Whoever ended it does not want to wait for a report.
        tell(
            f"{whole} of {len(CASES)} cases are whole; for their report: snakemake so_far, and the same options"
        )
        return
    jobs = failed_jobs()
    for job in jobs:
        if "case" not in job.wildcards:
            tell(f"failed: {job.rule}: {reason(job.log)} ({job.log})")
    found = failures(jobs)
    if not found:
        return
    write_text_atomic(FAILURES_FILE, json.dumps(failures_record(found), indent=1) + "\n")
    for case, one in found.items():
        tell(f"failed: {case}: {one['step']}: {one['reason']} ({one['log']})")
    report_others(len(found))


def how_to_go_on():
    """The last line after a failure."""
    traced = any(job.rule.startswith("capture") for job in failed_jobs())
    hint = " (without traces: --config profiler=off)" if traced else ""
    return f"stopped early; mend what is named above and start again{hint}"


def report_others(failed):
    """Make the report although some cases failed, and say so."""
    command = [sys.executable, "-m", "scripts.build_report", *report_options(), "-o", "results"]
    Path("logs").mkdir(exist_ok=True)
    with open("logs/report.log", "wb") as log:
        options = dict(stdout=log, stderr=subprocess.STDOUT, check=False)
        made = subprocess.run([*command, f"--failures={FAILURES_FILE}"], **options).returncode == 0
    if made:
        # Older than all it is made of: the next call makes the report again, whatever becomes of these cases.
        os.utime("results/report.json", (1, 1))  # Snakemake takes 0 for no time at all
        tell(f"{failed} of {len(CASES)} cases failed; results/report.html shows the others and says so")
    else:
        tell(f"{failed} of {len(CASES)} cases failed, and there is no report: {reason(Path(log.name))}")


def tell_plan():
    """After a dry run, what it would do by cases and how long that takes."""
    if not workflow.dryrun or workflow.dag is None:
        return
    plan = Plan(
        [step_of(job) for job in workflow.dag.jobs],
        {name: case["model"] for name, case in CASES.items()},
        SETTINGS,
        {case: len(traces_to_expect(case)) for case in CASES},
        DEVICE,
        gpus(),
        all_cores(),
    )
    for line in plan.lines():
        tell(line)


def traces_to_expect(case):
    """Names of the traces of a case that is yet to be measured, by what this host is known to have."""
    return expected_traces(traced_strategies(case), DEVICE, settings.profiler(config), host_tracer())


@functools.cache
def host_tracer():
    """The nsys that will trace; None where there is none, and what is to be expected where jobs run on other hosts."""
    if DEVICE == "cuda" and not find_gpu(os.environ).usable:
        return RECENT_NSYS
    try:
        return find_nsys(os.environ).version
    except LaunchgapError:
        return None


def step_of(job):
    """A job as a step of the plan, with the time it took before by Snakemake's own record."""
    before = workflow.persistence.metadata(job.output[0]) if job.output else None
    took = before.endtime - before.starttime if before and before.endtime and before.starttime else None
    return Step(job.rule.name, job.wildcards_dict.get("case", ""), workflow.dag.needrun(job), took)


if workflow.is_main_process:
    atexit.register(tell_plan)
