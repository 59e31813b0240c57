"""The report's sentences: verdicts, what was lost, what is missing, what the profiler cost."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.costs import PaysAfter
from analysis.figures import SIMULATION_NOTE, case_title, device_name
from analysis.latency import drift_sentence
from analysis.report_cells import MINUS, change_words, count, interval, mebibytes, signed
from analysis.report_data import CaseReport, ReportData, StrategyReport
from contract import ACCEPTANCE_PERCENT, DEFAULT_STRATEGIES, CorrectnessFields, Strategy

BADGES = {"met": "criterion met", "missed": "criterion missed", "none": "no verdict"}

NO_MASK_NOTE = (
    "No mask: captured without a mask, as eager runs; eager's own check for packed sequences (a few small "
    "kernels and one wait for the device) is not in the graph."
)


def badge(case: CaseReport) -> str:
    """The verdict in two words."""
    return "simulation" if case.simulated else BADGES[case.verdict.status]


def headline(case: CaseReport) -> str:
    """The verdict in one sentence; a simulation says that there is none to give."""
    if case.simulated:
        return f"{SIMULATION_NOTE[0].upper()}{SIMULATION_NOTE[1:]}, and none is judged."
    sentence = case.verdict.sentence
    return sentence[0].upper() + sentence[1:]


def overall_headline(data: ReportData) -> str:
    """One sentence over all cases."""
    if len(data.cases) == 1 and not data.broken:
        return headline(data.cases[0])
    judged = [case for case in data.cases if case.verdict.status != "none"]
    if not judged:
        simulated = [case for case in data.cases if case.simulated]
        return headline(simulated[0]) if len(simulated) == len(data.cases) else "No case could be judged."
    met = [case for case in judged if case.verdict.status == "met"]
    changes = [case.verdict.reduction.percent for case in judged if case.verdict.reduction is not None]
    rest = len(data.cases) + len(data.broken) - len(judged)
    sentence = (
        f"{len(met)} of {len(judged)} cases {'clears' if len(met) == 1 else 'clear'} the "
        f"{ACCEPTANCE_PERCENT:g} % criterion: {_spread(min(changes), max(changes))}."
    )
    return sentence if not rest else f"{sentence} {rest} more could not be judged."


def _spread(worst: float, best: float) -> str:
    """The range of reductions over all cases, in percent, with losses said as plainly as wins."""
    low, high = signed(abs(worst), 1), signed(abs(best), 1)
    if worst >= 0:
        return (
            f"graph takes {low} % less time than eager"
            if low == high
            else f"graph takes {low} to {high} % less time than eager"
        )
    if best < 0:
        return (
            f"graph is {high} % slower than eager"
            if low == high
            else f"graph is {high} to {low} % slower than eager"
        )
    return f"graph takes {high} % less time than eager at best and is {low} % slower at worst"


def failure_words(one: StrategyReport) -> str:
    """That a strategy failed, and why."""
    reason = (one.fields["error"] or "no reason recorded").removeprefix(f"{one.name}: ")
    return f"{one.name} failed: {reason}"


def overall_heading(data: ReportData) -> str:
    """How many cases, and the machine if it is one and the same."""
    machines = {device_name(case.record) for case in data.cases if not case.simulated}
    where = (
        f" on {machines.pop()}"
        if len(machines) == 1 and not any(case.simulated for case in data.cases)
        else ""
    )
    return f"{len(data.cases) + len(data.broken)} cases{where}"


def case_heading(case: CaseReport) -> str:
    """What a case is, in one line."""
    return case_title(case.record)


def machine_line(case: CaseReport) -> str:
    """Where a case was measured, in one line."""
    environment = case.record["environment"]
    parts = [str(environment.get("cpu") or "CPU") if case.simulated else device_name(case.record)]
    for key, label in (
        ("driver", "driver"),
        ("cuda", "CUDA"),
        ("torch", "torch"),
        ("transformers", "transformers"),
    ):
        if environment.get(key):
            parts.append(f"{label} {environment[key]}")
    return " · ".join(parts)


def weights_note(case: CaseReport) -> str | None:
    """That random weights ran, and why; None for pretrained weights."""
    model = case.record["model"]
    if model["weights"] != "random":
        return None
    reason = f" ({model['reason']})" if model["reason"] else ""
    return f"Random weights ran{reason}: the latency is real, the text they would write is not."


def main_strategies(case: CaseReport) -> list[StrategyReport]:
    """Eager and its graphs; every strategy of a case that has none of them."""
    usual = [one for one in case.strategies if one.name in DEFAULT_STRATEGIES]
    return usual or list(case.strategies)


def peers(case: CaseReport) -> list[StrategyReport]:
    """The other strategies, which have a table of their own."""
    main = main_strategies(case)
    return [one for one in case.strategies if one not in main]


def remarks(case: CaseReport) -> list[str]:
    """What else must be said: strategies that failed, lost or whose output differs, drift, and doubts."""
    said = list(case.doubts)
    for one in case.strategies:
        said += _remarks(one, case)
    moved = drift_sentence(case.record)
    return [*said, moved.replace("-", MINUS)] if moved else said


def _remarks(one: StrategyReport, case: CaseReport) -> list[str]:
    if one.latency is None:
        return [failure_words(one)]
    said = []
    if one.reduction is not None and one.name != case.verdict.strategy and one in main_strategies(case):
        words = change_words(one.reduction)
        said.append(f"{one.name} against eager: {words}, reduction {interval(one.reduction)} %.")
    correctness = one.fields["correctness"]
    if correctness is not None and correctness["verdict"] == "DIFFERENT":
        said.append(f"{one.name}: its output DIFFERS from eager's ({correctness['rule']}).")
    return said


def mask_note(case: CaseReport, one: StrategyReport) -> str:
    """Why a graph runs other kernels than eager, where its attention mask is the reason; else empty."""
    eager = case.strategy(Strategy.EAGER)
    counts = [side.traced.kernels if side and side.traced else None for side in (one, eager)]
    fewer = counts[0] is not None and counts[1] is not None and counts[0] < counts[1]
    return {
        "none": NO_MASK_NOTE if fewer else "",
        "explicit": "Explicit mask: under capture the model builds an attention mask that eager skips, "
        "so the graph runs more kernels.",
        "static": "Static mask: the padded graph is fed an attention mask, which eager does without.",
    }.get(one.fields["attention_mask"] or "", "")


def noise_sentence(case: CaseReport) -> str:
    """How far eager is from itself."""
    found = case.noise
    if found is None or found.low is None:
        return "Eager was not measured against itself, so the noise is unknown."
    return (
        f"Eager against eager over the same rounds: {signed(found.percent, 1)} % {interval(found)} "
        "(95 % interval). A change of that size is noise."
    )


def glance(case: CaseReport) -> list[tuple[str, str]]:
    """What to know at a glance besides speed: output, cost of the capture, noise. Question and answer."""
    answers = []
    shown = main_strategies(case)
    outputs = [(one.name, one.fields["correctness"]) for one in shown]
    words = [f"{name} {_output_words(found)}" for name, found in outputs if found is not None]
    if words:
        answers.append(("Same output as eager?", f"{'; '.join(words)}."))
    costs = [cost for one in shown if (cost := _cost_words(one))]
    if costs:
        answers.append(("What does a graph cost?", f"{'; '.join(costs)}."))
    return [*answers, ("How large is the noise?", noise_sentence(case))]


def _output_words(found: CorrectnessFields) -> str:
    if found["bitwise"]:
        return "is bitwise equal"
    difference = found["max_abs_difference"]
    size = "not a number" if difference is None else f"{difference:.1e}"
    return f"is {found['verdict']} (largest difference {size})"


def _cost_words(one: StrategyReport) -> str:
    capture_s, pool_mib = one.fields["capture_s"], mebibytes(one.fields["graph_pool_bytes"])
    compile_s = one.fields.get("compile_s")
    memory = "" if pool_mib is None else f" and {pool_mib:.0f} MiB"
    costs = [] if compile_s is None else [f"{compile_s:.1f} s to compile"]
    costs += [] if capture_s is None else [f"{capture_s:.2f} s{memory} to capture"]
    if not costs:
        return ""
    return f"{one.name} {' and '.join(costs)}{_earned_words(one.pays_after)}"


def _earned_words(paid: PaysAfter | None) -> str:
    if paid is None:
        return ""
    return ", never earned back" if paid == "never" else f", earned back after {count(paid)} requests"


def tiles(case: CaseReport) -> list[tuple[str, str, str, str]]:
    """The numbers to see first: label, eager, graph, and how it was obtained. A missing one is a dash."""
    eager, graph = case.strategy(Strategy.EAGER), case.strategy(Strategy.GRAPH)
    clock = "wall clock, simulation" if case.simulated else "CUDA events, no profiler"
    return [
        ("Median latency, ms", _latency(eager), _latency(graph), clock),
        ("Launches per request", *_traced(eager, graph, "launches")),
        ("Kernels per request", *_traced(eager, graph, "kernels")),
        ("GPU busy, share of latency", *_busy(eager, graph)),
    ]


def _latency(one: StrategyReport | None) -> str:
    return (
        "–"
        if one is None or one.latency is None
        else signed(one.latency.median, 3 if one.latency.median < 1 else 2)
    )


def _traced(eager: StrategyReport | None, graph: StrategyReport | None, what: str) -> tuple[str, str, str]:
    values = [
        getattr(one.traced, what) if one is not None and one.traced is not None else None
        for one in (eager, graph)
    ]
    source = {"launches": "host calls that start GPU work", "kernels": "from node-mode traces"}[what]
    if values == [None, None]:
        return "–", "–", "not traced, see below"
    before, after = ("–" if value is None else count(value) for value in values)
    return before, after, source


def _busy(eager: StrategyReport | None, graph: StrategyReport | None) -> tuple[str, str, str]:
    shares = [busy_share(one) for one in (eager, graph)]
    if shares == [None, None]:
        return "–", "–", "no node-mode trace, see below"
    before, after = ("–" if share is None else f"{share:.0f} %" for share in shares)
    return before, after, "union of kernels, copies and fills as traced in node mode"


def busy_share(one: StrategyReport | None) -> float | None:
    """GPU busy time in percent of the unprofiled median latency; None without a node-mode trace."""
    if one is None or one.latency is None or one.traced is None or one.traced.gpu_busy_us is None:
        return None
    return one.traced.gpu_busy_us / (one.latency.median * 1e3) * 100


def varying_counts(case: CaseReport) -> Sequence[str]:
    """Counts that differ between requests of one trace, which they should not."""
    return [f"{one.name}: {words}." for one in case.strategies if one.traced for words in one.traced.varies]
