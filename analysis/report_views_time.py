"""The report's tables of where time went: from eager to graph to floor, both ledgers, cost, prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from analysis.report_cells import (
    NOT_MEASURED,
    Cell,
    Table,
    columns,
    count_cell,
    number_cell,
    signed,
    text_cell,
)
from analysis.report_data import CaseReport, ReportData
from analysis.report_explained import CostRow, Explained, HostRow, LedgerRow, ScoreRow
from analysis.waterfall import BUSY_IS_SPAN, busy_is_span, floor_us_of, median_request
from contract import Strategy, TraceMode

GPU_PARTS = ("head", "busy", "launch_bound_gaps", "device_gaps", "tail")
HOST_PARTS = ("launches", "synchronising", "copies", "allocations", "other_api", "rest")
AS_TRACED = "As traced: the profiler slows the host, so no part of it is a latency."
_HIDDEN_IN_SPAN = {"busy": "busy (graph: replay span, pauses included)", "device_gaps": "device gaps"}
_SPAN_NOTE = f"{BUSY_IS_SPAN}; its device gaps are those outside it. Neither is comparable with eager's."
_FLOOR = {
    True: "Floor: the time to read the weights once, at the bandwidth that was reached in the run.",
    False: "Floor: the time to read the weights once, at the bandwidth of the calibration.",
}
_NS_PER_US = 1_000.0


def shown_mode(rows: Sequence[LedgerRow | HostRow], strategy: str) -> str | None:
    """Trace mode to take a strategy's ledgers from: graph mode where it is, which slows no replay."""
    modes = {row.trace_mode for row in rows if row.strategy == strategy}
    return next((mode.value for mode in (TraceMode.GRAPH, TraceMode.NODE) if mode in modes), None)


def median_ledger(found: Explained, strategy: str) -> LedgerRow | None:
    """The request of a strategy that has the median range; None where it was not traced."""
    mode = shown_mode(found.ledger, strategy)
    rows = [row for row in found.ledger if (row.strategy, row.trace_mode) == (strategy, mode)]
    return rows[median_request([row.range_ns or 0.0 for row in rows])] if rows else None


def parts_us(row: LedgerRow) -> tuple[float, ...]:
    """The five parts of a ledger in microseconds, in the order of `GPU_PARTS`."""
    return tuple((getattr(row, f"{part}_ns") or 0.0) / _NS_PER_US for part in GPU_PARTS)


def case_floor_us(case: CaseReport) -> float | None:
    """Time to read the weights once: of the run, or else by the calibration's bandwidth."""
    measured = floor_us_of(case.record)
    if measured is not None or case.explained is None or case.explained.prediction is None:
        return measured
    return case.explained.prediction.floor_us


def waterfall_table(case: CaseReport) -> Table | None:
    """The median request of eager and of the graph, part by part, and the floor."""
    if case.explained is None:
        return None
    sides = [median_ledger(case.explained, name) for name in (Strategy.EAGER.value, Strategy.GRAPH.value)]
    if sides == [None, None]:
        return None
    values = [
        None if side is None else (*parts_us(side), (side.range_ns or 0.0) / _NS_PER_US) for side in sides
    ]
    rows = []
    for place, name in enumerate((*GPU_PARTS, "range")):
        pair = [None if one is None else one[place] for one in values]
        row = _waterfall_row(name.replace("_", " ").replace("launch bound", "launch-bound"), *pair)
        if name in _HIDDEN_IN_SPAN and is_span(sides[1]):
            row = (text_cell(_HIDDEN_IN_SPAN[name]), *row[1:-1], Cell(""))
        rows.append(row)
    floor_us, notes = case_floor_us(case), [AS_TRACED]
    if is_span(sides[1]):
        notes.append(_SPAN_NOTE)
    if floor_us is not None:
        rows.append(_waterfall_row("floor", None, floor_us))
        notes.append(_FLOOR[floor_us_of(case.record) is not None])
    return Table(
        "GPU's ledger of the request with the median range, eager's and the graph's. The five "
        "parts add up to "
        "the range.",
        columns(":part", "eager µs", "graph µs", "difference µs"),
        tuple(rows),
        f"{case.explained.source}/ledger.csv",
        tuple(notes),
    )


def is_span(row: LedgerRow | None) -> bool:
    """Whether busy is that of whole replays, which hides the pauses in them."""
    return row is not None and busy_is_span(row.strategy, row.trace_mode)


def _waterfall_row(name: str, before: float | None, after: float | None) -> tuple[Cell, ...]:
    change = None if before is None or after is None else after - before
    return (text_cell(name), number_cell(before, 1), number_cell(after, 1), number_cell(change, 1))


def ledger_table(case: CaseReport) -> Table | None:
    """The GPU's ledger of each strategy, mean over its requests."""
    found = case.explained
    titles = ("head µs", "busy µs", "launch-bound gaps µs", "device gaps µs", "tail µs")
    caption = "GPU's ledger: means over the requests. The parts add up to the range."
    if found is None:
        return None
    table = _means(case, found.ledger, GPU_PARTS, titles, (caption, "ledger.csv"))
    if table is None or not is_span(median_ledger(found, Strategy.GRAPH.value)):
        return table
    return replace(table, notes=(*table.notes, _SPAN_NOTE))


def host_ledger_table(case: CaseReport) -> Table | None:
    """The host's ledger of each strategy, mean over its requests."""
    found = case.explained
    titles = ("launches µs", "synchronising µs", "copies µs", "allocations µs", "other API µs", "rest µs")
    caption = "Host's ledger: the same range from the side of its thread. Rest: no CUDA call was open."
    told = (caption, "host_ledger.csv")
    return None if found is None else _means(case, found.host, HOST_PARTS, titles, told)


def mean_parts_us(rows: Sequence[LedgerRow | HostRow], parts: Sequence[str]) -> dict[str, float | None]:
    """Microseconds of each part, mean over rows; None where a row lacks it."""
    means: dict[str, float | None] = {}
    for part in parts:
        values = [getattr(row, f"{part}_ns") for row in rows]
        means[part] = fmean(values) / _NS_PER_US if values and None not in values else None
    return means


def _means(
    case: CaseReport,
    rows: Sequence[LedgerRow | HostRow],
    parts: Sequence[str],
    titles: Sequence[str],
    told: tuple[str, str],
) -> Table | None:
    lines = []
    for one in case.strategies:
        mode = shown_mode(rows, one.name)
        of_one = [row for row in rows if (row.strategy, row.trace_mode) == (one.name, mode)]
        if of_one and mode is not None:
            means = mean_parts_us(of_one, (*parts, "range"))
            trace = text_cell(f"{mode} mode, {len(of_one)} requests")
            cells = [number_cell(value, 1) for value in means.values()]
            lines.append((text_cell(one.name, code=True), trace, *cells))
    if not lines or case.explained is None:
        return None
    head = columns(":strategy", ":trace", *titles, "range µs")
    return Table(told[0], head, tuple(lines), f"{case.explained.source}/{told[1]}", (AS_TRACED,))


def cost_steps_table(case: CaseReport) -> Table | None:
    """Host time of the steps in a graph's life, as traced; steps without a call are left out."""
    if case.explained is None:
        return None
    seen, unseen = [], dict[str, None]()
    for row in case.explained.cost:
        if row.trace_mode != shown_mode(case.explained.ledger, row.strategy):
            continue
        if row.calls:
            seen.append(_cost_cells(row))
        elif row.calls is None:
            unseen[row.step] = None
    if not seen:
        return None
    note = f"Not to be seen, since the trace begins after the capture: {', '.join(unseen)}." if unseen else ""
    return Table(
        "Steps in the life of a graph: host time over the whole trace, as traced.",
        columns(":strategy", ":step", "calls", "total µs", "mean µs", "median µs", "max µs"),
        tuple(seen),
        f"{case.explained.source}/graph_cost.csv",
        (note,) if note else (),
    )


def _cost_cells(row: CostRow) -> tuple[Cell, ...]:
    times = (row.total_us, row.mean_us, row.median_us, row.max_us)
    return (
        text_cell(row.strategy, code=True),
        text_cell(row.step),
        count_cell(row.calls),
        *(number_cell(value, 1) for value in times),
    )


def score_table(case: CaseReport) -> Table | None:
    """The prediction beside the measurement; None where either is missing."""
    if case.explained is None or not case.explained.scores:
        return None
    return Table(
        "Latency of the graph, predicted from the eager trace, beside the measurement. Error: predicted "
        "against measured; positive where the graph was faster. Level: highest after kernels on other "
        "streams, see docs/prediction.md.",
        columns(":strategy", *_SCORE_TITLES, "nodes", "gap per node µs", "gap that would be exact µs"),
        tuple(
            (
                text_cell(row.strategy, code=True),
                *_score_cells(row),
                count_cell(row.nodes),
                number_cell(row.gap_us, 3),
                number_cell(row.exact_gap_us, 3),
            )
            for row in case.explained.scores
        ),
        f"{case.explained.source}/scores.csv",
    )


def summary_table(case: CaseReport) -> Table | None:
    """The prediction in its parts."""
    if case.explained is None or not case.explained.summary:
        return None
    return Table(
        "The predicted graph's median request, with 95 % intervals.",
        columns(":quantity", "µs", "from µs", "to µs", "~meaning"),
        tuple(
            (
                text_cell(row.quantity),
                *(number_cell(value, 2) for value in (row.us, row.low_us, row.high_us)),
                text_cell(row.meaning),
            )
            for row in case.explained.summary
        ),
        f"{case.explained.source}/prediction_summary.csv",
    )


def predictions_table(data: ReportData) -> Table | None:
    """Every prediction of the report beside its measurement."""
    rows = [(case, score) for case in data.cases if case.explained for score in case.explained.scores]
    if not rows:
        return None
    sources = [case.explained.source for case, _ in rows if case.explained]
    return Table(
        "Predictions of all cases beside their measurements: latency of the graph, from the "
        "eager trace alone.",
        columns(":case", *_SCORE_TITLES, ":would a graph help?"),
        tuple((text_cell(case.name), *_score_cells(score), text_cell(_answer(case))) for case, score in rows),
        f"{sources[0]}/scores.csv" if len(sources) == 1 else "",
        () if len(sources) == 1 else ("Numbers from scores.csv of each case.",),
    )


_SCORE_TITLES = (":level", "predicted µs [95 %]", "measured µs", "error %", ":inside the interval")


def _score_cells(row: ScoreRow) -> tuple[Cell, ...]:
    return (
        text_cell(row.level),
        _estimate_cell(row),
        number_cell(row.measured_us, 1),
        number_cell(row.error_percent, 1),
        text_cell(row.inside or NOT_MEASURED),
    )


def _estimate_cell(row: ScoreRow) -> Cell:
    if row.predicted_us is None or row.low_us is None or row.high_us is None:
        return Cell(NOT_MEASURED)
    text = f"{signed(row.predicted_us, 1)} [{signed(row.low_us, 1)}, {signed(row.high_us, 1)}]"
    return Cell(text, sort=row.predicted_us)


def _answer(case: CaseReport) -> str:
    found = case.explained.prediction if case.explained else None
    return found.answer if found else NOT_MEASURED
