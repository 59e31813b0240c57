"""The report's tables from latency records: overview, before and after, output, cost, environment."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from analysis.costs import floor_sentence, last_logits_sentence, other_streams_sentence, set_up_s
from analysis.report_cells import (
    NOT_MEASURED,
    Cell,
    Table,
    bar_cell,
    change_words,
    columns,
    count_cell,
    mebibytes,
    number_cell,
    reduction_cell,
    text_cell,
)
from analysis.report_data import CaseReport, ReportData, StrategyReport
from analysis.report_words import badge, busy_share, failure_words, main_strategies, mask_note, peers
from contract import CorrectnessFields, Strategy

_EXECUTABLE = re.compile(r"\w+\.py")
_US_PER_MS = 1_000.0


def overview_table(data: ReportData) -> Table:
    """One row per case: the verdict, and latency, launches and kernels before and after."""
    rows = [_overview_row(number, case) for number, case in enumerate(data.cases, start=1)]
    rows += [
        (text_cell(case.name), text_cell(case.status, title=case.reason), *[Cell(NOT_MEASURED)] * 6)
        for case in data.broken
    ]
    return Table(
        "All cases. Median latency without a profiler; launches and kernels per request from traces. GPU "
        "busy: union of kernels, copies and fills as traced in node mode, share of latency.",
        columns(":case", ":verdict", "eager ms", "graph ms", "reduction % [95 %]", "launches eager → graph",
            "kernels eager → graph", "GPU busy eager → graph"),
        tuple(rows),
        notes=(
            *(f"{case.name}, {case.status}: {case.reason}." for case in data.broken),
            *unread_words(data),
        ),
    )  # fmt: skip


def unread_words(data: ReportData) -> tuple[str, ...]:
    """A sentence for each part of a case whose files could not be read."""
    return tuple(
        f"{case.name} lacks {lost.part.what[0].lower()}{lost.part.what[1:]}: {lost.part.why}."
        for case in data.cases
        for lost in case.unread
    )


def latency_table(case: CaseReport) -> Table:
    """Before and after: eager and its graphs, with the reduction, its interval and what it means in words."""
    shown = main_strategies(case)
    failures = [failure_words(one) for one in shown if one.latency is None]
    last = None if peers(case) else last_logits_sentence(case.record)
    notes = [*failures, last, other_streams_sentence(case.record), floor_sentence(case.record)]
    return _latencies(case, shown, "Latency of one forward pass", [note for note in notes if note])


def peers_table(case: CaseReport) -> Table | None:
    """The same of every other strategy, below eager as their baseline; None where none was measured."""
    others = peers(case)
    if not others:
        return None
    eager = [one for one in case.strategies if one.name == Strategy.EAGER]
    failures = [failure_words(one) for one in others if one.latency is None]
    notes = [*failures, last_logits_sentence(case.record)]
    return _latencies(case, [*eager, *others], "Latency of the other ways", [note for note in notes if note])


def _latencies(case: CaseReport, shown: Sequence[StrategyReport], what: str, notes: Sequence[str]) -> Table:
    """One row per strategy; bars are as long in every table of a case."""
    longest = max((one.latency.median for one in case.strategies if one.latency), default=0.0)
    with_p99 = any(one.latency is not None and one.latency.p99 is not None for one in shown)
    with_busy = any(
        one.traced is not None and one.traced.gpu_busy_us is not None
        for one in shown
        if one.name != Strategy.EAGER
    )
    judged = not case.simulated
    rows = tuple(_latency_row(one, longest, with_p99, judged, with_busy) for one in shown)
    titles = [":strategy", ":", "median ms", "mean ms", "p95 ms", *(["p99 ms"] if with_p99 else [])]
    titles += ["min ms", "max ms"]
    titles += ["reduction % [95 % interval]", ":against eager"] if judged else []
    titles += ["whole request, median ms"]
    titles += ["whole request, reduction % [95 % interval]"] if judged else []
    titles += ["GPU busy as traced, ms"] if with_busy else []
    clock = "wall clock" if case.simulated else "CUDA events"
    runs = sorted({one.latency.n for one in shown if one.latency is not None})
    each = f", {' or '.join(map(str, runs))} requests each" if runs else ""
    return Table(
        f"{what} by {clock}{each}, no profiler attached.",
        columns(*titles),
        rows,
        case.latency_source,
        tuple(notes),
    )


def correctness_table(case: CaseReport) -> Table | None:
    """Graph output against eager output, with the rule that judged it; None where nothing was compared."""
    found = [(one.name, one.fields["correctness"]) for one in case.strategies]
    rows = tuple(_correctness_row(name, fields) for name, fields in found if fields is not None)
    if not rows:
        return None
    rules = dict.fromkeys(fields["rule"] for _, fields in found if fields is not None)
    return Table(
        "Logits of each strategy against eager's on fresh random prompts of the same run.",
        columns(":strategy", ":output", ":bitwise equal", ":allclose", "largest difference",
            ":same top token", "error against fp32", "eager's own error", "prompts"),
        rows,
        case.latency_source,
        tuple(f"Rule: {rule}." for rule in rules),
    )  # fmt: skip


def capture_table(case: CaseReport) -> Table | None:
    """What a graph or a compiler costs before it serves: time, memory, and the requests that earn it back."""
    prepared = [one for one in case.strategies if set_up_s(one.fields) is not None]
    if not prepared:
        return None
    compiled = any(one.fields.get("compile_s") is not None for one in prepared)
    return Table(
        f"Cost of {'compiling and ' if compiled else ''}capturing, paid once per shape. Earned back: that "
        "time over the wall time saved per request.",
        columns(
            ":strategy",
            *(["compile s"] if compiled else []),
            "capture s",
            "graph memory MiB",
            ":attention mask",
            "kernels per replay",
            "earned back after requests",
        ),
        tuple(_cost_row(one, compiled) for one in prepared),
        case.latency_source,
        tuple(dict.fromkeys(note for one in prepared if (note := mask_note(case, one)))),
    )


def _cost_row(one: StrategyReport, compiled: bool) -> tuple[Cell, ...]:
    paid = one.pays_after
    return (
        text_cell(one.name, code=True),
        *([number_cell(one.fields.get("compile_s"), 1)] if compiled else []),
        number_cell(one.fields["capture_s"], 2),
        number_cell(mebibytes(one.fields["graph_pool_bytes"]), 1),
        text_cell(one.fields["attention_mask"] or NOT_MEASURED),
        count_cell(one.traced.kernels if one.traced else None),
        Cell("never") if paid == "never" else count_cell(paid),
    )


def environment_table(case: CaseReport) -> Table:
    """Everything recorded about model, settings and machine, flattened to names and values."""
    record = case.record
    pairs = [*_flat("case", record["case"]), *_flat("model", record["model"])]
    pairs += [*_flat("settings", record["settings"]), *_flat("environment", record["environment"])]
    rows = tuple((text_cell(name), text_cell(value)) for name, value in pairs)
    return Table("What was measured, and on what.", columns(":field", "~value"), rows, case.latency_source)


def commands(case: CaseReport) -> tuple[str, ...]:
    """The commands that made the latency record and each trace, quoted for a shell, each below a remark."""
    said = [f"# latency\n{_shell(case.record['command'])}"]
    for trace in case.tables.traces if case.tables else ():
        if trace.command:
            where = f"{trace.strategy}, {trace.trace_mode} mode".replace("\n", " ")
            said.append(f"# trace of {where}\n{_shell(trace.command)}")
    return tuple(said)


def _shell(command: Sequence[object]) -> str:
    """A command as it can be typed; of an executable of launchgap the record holds the file's name alone."""
    words = [str(part) for part in command]
    if words and _EXECUTABLE.fullmatch(words[0]):
        words[:1] = ["python", f"scripts/{words[0]}"]
    return shlex.join(words)


def case_anchor(number: int) -> str:
    """Name of the section of the case with that number, counted from 1."""
    return f"case-{number}"


def _overview_row(number: int, case: CaseReport) -> tuple[Cell, ...]:
    eager, graph = case.strategy(Strategy.EAGER), case.strategy(Strategy.GRAPH)
    found = graph.reduction if graph is not None else None
    return (
        Cell(case.name, anchor=case_anchor(number)),
        text_cell(badge(case)),
        number_cell(_median_ms(eager), 3),
        number_cell(_median_ms(graph), 3),
        reduction_cell(found),
        arrow_cell(
            *[count_cell(one.traced.launches if one and one.traced else None) for one in (eager, graph)]
        ),
        arrow_cell(
            *[count_cell(one.traced.kernels if one and one.traced else None) for one in (eager, graph)]
        ),
        arrow_cell(*[busy_cell(one) for one in (eager, graph)]),
    )


def arrow_cell(before: Cell, after: Cell) -> Cell:
    """Two cells as one, `before → after`, sorted by the first."""
    if before.sort is None and after.sort is None:
        return Cell(NOT_MEASURED, title="not measured")
    return Cell(f"{before.text} → {after.text}", sort=before.sort)


def busy_cell(one: StrategyReport | None) -> Cell:
    """GPU busy time as traced in node mode, in percent of the unprofiled median latency."""
    share = busy_share(one)
    if share is None:
        return Cell(NOT_MEASURED, title="not measured")
    return Cell(f"{share:.0f} %", sort=share)


def _median_ms(one: StrategyReport | None) -> float | None:
    return one.latency.median if one is not None and one.latency is not None else None


def _latency_row(
    one: StrategyReport, longest: float, with_p99: bool, judged: bool, with_busy: bool
) -> tuple[Cell, ...]:
    found, reduction = one.latency, one.reduction
    cells = [text_cell(one.name, code=True), bar_cell([(found.median if found else None, one.name)], longest)]
    quantities = ["median", "mean", "p95", *(["p99"] if with_p99 else []), "min", "max"]
    cells += [number_cell(getattr(found, name) if found else None, 3) for name in quantities]
    if judged:
        failed = "failed" if found is None else "baseline" if one.name == Strategy.EAGER else NOT_MEASURED
        cells += [
            reduction_cell(reduction),
            text_cell(change_words(reduction) if reduction else failed),
        ]
    cells.append(number_cell(one.wall.median if one.wall else None, 3))
    if judged:
        cells.append(reduction_cell(one.wall_reduction))
    if with_busy:
        busy_us = one.traced.gpu_busy_us if one.traced else None
        cells.append(number_cell(None if busy_us is None else busy_us / _US_PER_MS, 3))
    return tuple(cells)


def _correctness_row(name: str, found: CorrectnessFields) -> tuple[Cell, ...]:
    return (
        text_cell(name, code=True),
        text_cell(found["verdict"]),
        text_cell("yes" if found["bitwise"] else "no"),
        text_cell(f"{'yes' if found['allclose'] else 'no'} (atol {found['atol']:g}, rtol {found['rtol']:g})"),
        _scientific(found["max_abs_difference"], "not a number"),
        text_cell("yes" if found["same_argmax"] else "no"),
        _scientific(found["error_vs_fp32"], NOT_MEASURED),
        _scientific(found["eager_error_vs_fp32"], NOT_MEASURED),
        count_cell(float(found["inputs"])),
    )


def _scientific(value: float | None, absent: str) -> Cell:
    if value is None:
        return Cell(absent)
    return Cell("0" if value == 0 else f"{value:.1e}", sort=value)


def _flat(prefix: str, value: object) -> list[tuple[str, str]]:
    """Nested mappings as dotted names; lists in one line; an absent value as a dash."""
    if isinstance(value, Mapping):
        return [pair for key, inner in value.items() for pair in _flat(f"{prefix}.{key}", inner)]
    if isinstance(value, list | tuple):
        return [(prefix, ", ".join(map(str, value)) or NOT_MEASURED)]
    if isinstance(value, bool):
        return [(prefix, "yes" if value else "no")]
    return [(prefix, NOT_MEASURED if value is None or value == "" else str(value))]
