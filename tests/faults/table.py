"""The table in docs/faults.md: `python -m tests.faults.table` writes it, test_table.py holds it true."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/faults.md"
BEGIN, END = "<!-- the table begins: written by tests/faults/table.py -->", "<!-- the table ends -->"

SAME = "A re-run gives the same"


@dataclass(frozen=True)
class Fault:
    """One fault: how it is injected, what a user sees, what is left, and the tests that prove it.

    What stands in backticks in `seen` is in the source of one of the tests or of launchgap, word for word.
    """

    name: str
    injected: str
    seen: str
    after: str
    tests: tuple[str, ...]


STAGES = "tests/faults/test_stages.py"
DISK = "tests/faults/test_disk.py"
MACHINE = "tests/faults/test_machine.py"
TRACER = "tests/faults/test_tracer.py"
AROUND = "tests/faults/test_surroundings.py"
KILLED = "tests/pipeline/test_killed.py"
TRACE = "tests/nsight/test_trace.py"

FAULTS = (
    Fault(
        "Snakemake killed (`kill -9`) while it looks at the host, measures, analyses or writes the report",
        "real signal, half of an output in its place; stand-ins for slow programs",
        "`It can be removed with the --unlock argument` from Snakemake, once",
        f"The stage ends with its Snakemake. {SAME}",
        (f"{STAGES}::test_killed_at_a_stage",),
    ),
    Fault(
        "Snakemake killed while the real benchmark runs",
        "real signal, nothing is a stand-in",
        "as above",
        f"No record. {SAME} in all but times",
        (f"{STAGES}::test_the_real_measurement_killed",),
    ),
    Fault(
        "Snakemake, nsys or the traced program killed during a capture",
        "real signals, real nsys",
        "`error: nsys profile: exit code 137 (SIGKILL)`, `error: traced program: exit code 137 (SIGKILL)`",
        f"No trace, no process. {SAME}",
        (
            f"{KILLED}::test_snakemake_killed",
            f"{KILLED}::test_whole_group_killed",
            f"{KILLED}::test_nsys_killed_then_program_killed",
        ),
    ),
    Fault(
        "SIGTERM to the process group",
        "real signal, during a measurement and during a capture",
        "Snakemake says that it ends",
        f"No lock, nothing half-made. {SAME}",
        (f"{STAGES}::test_killed_at_a_stage", f"{KILLED}::test_group_terminated"),
    ),
    Fault(
        "disk full at each write of preflight, measurement, analysis and report",
        "a tmpfs without room for the next file; where none may be mounted, a limit on file sizes",
        "`No space left on device; free some disk space` with the file's name, exit code 2",
        f"Whole files or none, no temporary ones. {SAME}",
        tuple(f"{DISK}::test_{stage}" for stage in ("preflight", "measure", "analyse", "report")),
    ),
    Fault(
        "disk full during a capture",
        "a tmpfs of 4 and of 300 KiB, real nsys",
        "`its disk or that of temporary files is full`, or the file that cannot be written",
        "No trace. Works where there is room",
        (f"{DISK}::test_capture", f"{TRACE}::test_nsys_that_fails_on_a_full_disk"),
    ),
    Fault(
        "nsys, or the program under it, hangs",
        "a stand-in for nsys that sleeps; a real program that does",
        "`so it and its program were ended; raise the time-out (capture_timeout_s)`",
        "Nothing runs on",
        (f"{TRACE}::test_nsys_that_hangs", f"{TRACE}::test_program_that_hangs"),
    ),
    Fault(
        "nsys ends well and leaves a broken file",
        "a stand-in for nsys: random bytes, nothing, half of a real export",
        "`nsys export: its SQLite file is damaged`",
        f"No trace. {SAME} once nsys is mended",
        (
            f"{TRACER}::test_a_report_that_is_broken",
            f"{TRACER}::test_the_pipeline_goes_on_once_nsys_is_mended",
        ),
    ),
    Fault(
        "nsys does not find its own agent or semaphore",
        "a stand-in for nsys, whose real one does so by chance",
        "a line in the log, and a second try",
        "The trace, or one line",
        (f"{TRACE}::test_an_agent_that_was_not_found_is_looked_for_once_more",),
    ),
    Fault(
        "several captures at once on one host with nsys older than 2024, which can lose one of two",
        "real nsys, three captures started at once; a lock that is held, stand-ins for nsys",
        "`waiting: another capture runs` in the log",
        "All traces, one capture after the other. The wait is no part of the time-out",
        (
            f"{TRACE}::test_captures_that_start_at_once_all_give_a_trace",
            f"{TRACE}::test_the_wait_for_another_capture_is_told_and_is_none_of_its_time",
            f"{TRACE}::test_a_capture_that_waits_ends_with_its_starter_and_a_newer_nsys_waits_for_none",
        ),
    ),
    Fault(
        "the GPU is lost",
        "simulated: the errors of CUDA, word for word",
        "CUDA's own line and `the GPU or its driver failed: see nvidia-smi and `, exit code 2",
        "No record",
        (f"{MACHINE}::test_a_gpu_that_is_lost", f"{MACHINE}::test_a_defect_on_the_gpu_keeps_its_traceback"),
    ),
    Fault(
        "GPU memory full",
        "simulated: torch's errors",
        "one strategy: it failed and why, the others stand; all: "
        "`use a smaller model, dtype or length, or end what else takes memory`",
        "What could be measured",
        (
            f"{MACHINE}::test_memory_that_is_full",
            "tests/inference/test_benchmark.py::test_a_failed_strategy_leaves_the_others",
        ),
    ),
    Fault(
        "host memory full",
        "a real limit (RLIMIT_AS)",
        "`can't allocate memory` and what to do, exit code 2",
        "No record",
        (f"{MACHINE}::test_host_memory_that_is_full",),
    ),
    Fault(
        "the clock is set while something is measured",
        "simulated: the clock goes back an hour at each look; and no measuring source reads it",
        "nothing",
        "Times are true: they come from clocks that nobody can set",
        (
            f"{MACHINE}::test_a_clock_that_jumps_is_not_seen",
            f"{MACHINE}::test_nothing_is_measured_by_a_clock_that_can_be_set",
        ),
    ),
    Fault(
        "results of an older version in the folder",
        "real: records of another schema",
        "`record schema 0, this launchgap reads 1; measure again`",
        f"`--forcerun RULE` makes them anew. {SAME}",
        (f"{TRACER}::test_results_of_an_older_version",),
    ),
    Fault(
        "a table of the results is damaged",
        "real: one is cut off; each way of damage on its own",
        "the file, what is wrong with it, and the command that makes it anew",
        f"A report that is made meanwhile lacks what the table told, and says so. {SAME}",
        (
            f"{TRACER}::test_a_damaged_table_is_made_anew_by_what_its_error_says",
            "tests/analysis/test_report_tables.py::test_a_damaged_table_is_one_line_that_names_it",
        ),
    ),
    Fault(
        "two pipelines in one folder",
        "real: the second starts while the first traces",
        "Snakemake's `Directory cannot be locked`",
        f"The first goes on. {SAME}",
        (f"{AROUND}::test_two_pipelines_in_one_folder",),
    ),
    Fault(
        "read-only checkout, results elsewhere; names with spaces, quotes, `$(...)` and letters of many "
        "alphabets; a locale without UTF-8; no HOME",
        "real, all at once",
        "nothing",
        "The results of an undisturbed run",
        (
            f"{AROUND}::test_everything_odd_at_once",
            f"{AROUND}::test_commands_in_a_locale_without_utf8_and_without_a_home",
            f"{AROUND}::test_letters_that_cannot_be_printed",
        ),
    ),
    Fault(
        "read-only folder for the results",
        "a bind mount that is read-only; where none may be made, permissions",
        "`results: cannot be written (no permission); give a writable folder`",
        "Nothing",
        (f"{AROUND}::test_a_folder_that_is_read_only_is_one_line",),
    ),
)


def table() -> str:
    """The rows in Markdown, between the two marks."""
    lines = [
        BEGIN,
        "",
        "| fault | how it is injected | what you see | after it | test |",
        "| --- | --- | --- | --- | --- |",
    ]
    for fault in FAULTS:
        tests = "<br>".join(f"`{name.removeprefix('tests/')}`" for name in fault.tests)
        lines.append(f"| {fault.name} | {fault.injected} | {fault.seen} | {fault.after} | {tests} |")
    return "\n".join([*lines, "", END])


def quotes(fault: Fault) -> list[str]:
    """What the table says that a user sees, word for word."""
    return re.findall(r"`([^`]+)`", fault.seen)


def names_of_tests(path: Path) -> set[str]:
    """Names of the tests that a file holds."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {node.name for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def page() -> str:
    """The page with the table as it should be."""
    text = PAGE.read_text(encoding="utf-8")
    return text[: text.index(BEGIN)] + table() + text[text.index(END) + len(END) :]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
