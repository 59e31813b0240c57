"""What a run would do and how long that takes, told case by case before anything starts (`--dry-run`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from nsight.install import GRAPH_EXPORT_SINCE
from rules.settings import has_graph_mode, trace_names

_CAPTURES = ("capture", "capture_torch")
_TIMED = ("calibrate", "measure", *_CAPTURES)
"""Rules that need a GPU to themselves: their times add up; those of others are shared out over the cores."""

_KNOWN = (*_TIMED, "preflight", "analyse", "report")

RECENT_NSYS = GRAPH_EXPORT_SINCE
"""Stands for the version on other hosts, which nobody knows here: one that does all there is."""


@dataclass(frozen=True)
class Step:
    """A job of the pipeline: whether it is to run, and how long it took when it ran before, in seconds."""

    rule: str
    case: str = ""
    needed: bool = True
    earlier_s: float | None = None


@dataclass(frozen=True)
class _Thumb:
    """Seconds of measuring, to start and for each strategy and run, and of a trace without its requests."""

    start: float
    strategy: float
    run: float
    trace: float


_THUMBS = {"cuda": _Thumb(7.0, 1.0, 0.005, 10.0), "cpu": _Thumb(10.0, 2.0, 0.02, 10.0)}
_REQUEST_S = 0.05


def rule_of_thumb_s(rule: str, settings: Mapping[str, Any], cases: int, device: str) -> float:
    """Seconds that a step takes on a device, cuda or cpu, where nothing of its kind ran here before.

    Starting Python with torch and loading a small model is most of it; a large model takes longer.
    docs/sweeps.md says which runs the figures are of.
    """
    thumb = _THUMBS[device]
    if rule == "measure":
        each = thumb.strategy + thumb.run * int(settings["runs"])
        return thumb.start + float(settings["warmup_s"]) + each * len(settings["strategies"])
    if rule in _CAPTURES:
        return thumb.trace + _REQUEST_S * int(settings["traced_requests"])
    return {"analyse": 3.0, "report": 5.0 + 0.5 * cases, "calibrate": 60.0}.get(rule, 3.0)


@dataclass(frozen=True)
class Plan:
    """The steps of a run, with all that an estimate needs.

    `steps` are all that Snakemake knows of, the target itself among them. `models` are the cases' models,
    `settings` each case's own settings, both by case. `traces` are the traces to expect of a case that is yet
    to be measured: Snakemake does not know of them until then. `device` is cuda or cpu, the simulation.
    """

    steps: Sequence[Step]
    models: Mapping[str, str]
    settings: Mapping[str, Mapping[str, Any]]
    traces: Mapping[str, int]
    device: str
    gpus: int = 1
    cores: int = 1

    def lines(self) -> list[str]:
        """A line for all, one for each case that has something to run, and where the times are from.

        None where nothing of a case is to run.
        """
        todo = self._todo()
        by_case: dict[str, list[Step]] = {}
        for step in todo:
            if step.case:
                by_case.setdefault(step.case, []).append(step)
        if not by_case:
            return []
        width = max(map(len, by_case))
        told = [
            f"  {case:{width}}  {_what(steps):34}  {duration(sum(map(self.seconds, steps))):>10}"
            for case, steps in by_case.items()
        ]
        where = "on a GPU" if self.device == "cuda" else "as a simulation on the CPU"
        where = f"on {self.gpus} GPUs side by side" if self.gpus > 1 else where
        head = (
            f"plan: {len(by_case)} of {len(self.models)} cases have something to run, {self.count()} steps, "
            f"about {duration(self.total_s())} {where}"
        )
        return [head, *told, self._source(todo)]

    def count(self) -> int:
        """How many steps Snakemake will count: all that are to run, the target itself among them."""
        others = [step for step in self.steps if step.rule not in _KNOWN and step.needed]
        return len(self._todo()) + len(others)

    def total_s(self) -> float:
        """Seconds for all that is to run: timed steps in a row on each GPU, the others on all cores."""
        todo = self._todo()
        timed = sum(self.seconds(step) for step in todo if step.rule in _TIMED)
        alone = sum(self.seconds(step) for step in todo if step.rule in ("preflight", "report"))
        shared = sum(self.seconds(step) for step in todo if step.rule == "analyse")
        return timed / max(self.gpus, 1) + alone + shared / max(self.cores, 1)

    def seconds(self, step: Step) -> float:
        """A step's time when it ran before; else the median of its like, of the same model first."""
        if step.earlier_s is not None:
            return step.earlier_s
        alike = [other for other in self.steps if other.rule == step.rule and other.earlier_s is not None]
        model = self.models.get(step.case)
        same_model = [other for other in alike if self.models.get(other.case) == model]
        known = [other.earlier_s for other in same_model or alike if other.earlier_s is not None]
        if known:
            return median(known)
        return rule_of_thumb_s(step.rule, self.settings.get(step.case, {}), len(self.models), self.device)

    def _todo(self) -> list[Step]:
        """The steps that are to run, with those of a case that only follow once it is measured."""
        known = [step for step in self.steps if step.rule in _KNOWN]
        to_measure = [step.case for step in known if step.rule == "measure" and step.needed]
        later: list[Step] = []
        for case in to_measure:
            # What stays as it is after measuring is not known either: all traces that are not there count.
            there = [step for step in known if step.case == case and step.rule in _CAPTURES]
            later += [Step("capture", case)] * max(self.traces.get(case, 0) - len(there), 0)
            if self.traces.get(case) and not any(s.rule == "analyse" and s.case == case for s in known):
                later.append(Step("analyse", case))
        order = list(self.models)
        todo = [step for step in known if step.needed] + later
        return sorted(todo, key=lambda step: order.index(step.case) if step.case in order else len(order))

    def _source(self, todo: Iterable[Step]) -> str:
        timed_before = any(step.earlier_s is not None for step in self.steps)
        if not timed_before:
            return "times are a rule of thumb (docs/sweeps.md): nothing ran in this folder yet"
        own = sum(step.earlier_s is not None for step in todo)
        return f"times are of earlier runs in this folder: {own} of the same steps, the others of steps alike"


def _what(steps: Sequence[Step]) -> str:
    """The steps of a case in words: measure, 3 traces, tables."""
    traces = sum(step.rule in _CAPTURES for step in steps)
    words = ["measure"] if any(step.rule == "measure" for step in steps) else []
    words += [f"{traces} trace{'s' if traces > 1 else ''}"] if traces else []
    words += ["tables"] if any(step.rule == "analyse" for step in steps) else []
    return ", ".join(words)


def duration(seconds: float) -> str:
    """A time as people say it: 42 s, 12 min 30 s, 3 h 5 min."""
    whole = max(round(seconds), 1)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def expected_traces(
    strategies: Sequence[str], device: str, profiler_name: str, nsys: tuple[int, int, int] | None
) -> list[str]:
    """Names of the traces of a case if all of `strategies` can be measured, for a plan made before that.

    `nsys` is the version that will trace, None where there is none. `device` is cuda or cpu.
    """
    with_torch = profiler_name == "torch" or (profiler_name == "auto" and device == "cuda" and nsys is None)
    if profiler_name == "off" or not (with_torch or nsys):
        return []
    return trace_names(strategies, graph_mode=has_graph_mode(device, None if with_torch else nsys))
