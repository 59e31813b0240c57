"""What stands between a model and a CUDA graph: every obstacle with its line, a trial capture, and its parts.

    diagnosis = diagnose(model, prompts, make_backend(device))
    print(diagnosis.capturable, [ailment.place for ailment in diagnosis.ailments])

Three sources, since none sees everything: eager calls that are watched (all waits and reads, also those that
a capture would hide behind the first), two calls on other values compared operation by operation (branches
and state), and a trial capture whose replay is compared with eager (the truth on this device).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

import torch
from torch import Tensor, nn
from tqdm import tqdm

from contract import LaunchgapError
from inference.backends import Backend
from inference.blame import blame
from inference.doctor_parts import inner_parts, parts_of, record_inputs
from inference.doctor_trial import Inputs, Trial, try_capture
from inference.doctor_watch import LEGACY_STREAM, WAITS, Step, Stop, Watched, watch


class Harm(StrEnum):
    """What an ailment does, worst first; the last two do not keep a model from being captured."""

    BREAKS = "breaks"
    CORRUPTS = "corrupts"
    CHECK = "check"
    EAGER_ONLY = "eager only"


_REFUSED = re.compile(r'(?P<operation>.*?) at (?P<place>\S+:\d+(?: ".*")?):? (?P<why>.*)')


@dataclass(frozen=True)
class Ailment:
    """One thing at one line. `why` ends with the remedy; `per_request` is None where it is not counted."""

    harm: Harm
    operation: str
    place: str
    why: str
    per_request: float | None = None


@dataclass(frozen=True)
class Part:
    """A submodule captured by itself: `capturable` is None where no request called it."""

    name: str
    capturable: bool | None
    why: str


@dataclass(frozen=True)
class Diagnosis:
    """All that was found. `parts` are only tried where the whole cannot be captured."""

    lengths: tuple[int, ...]
    ailments: tuple[Ailment, ...]
    trial: Trial
    parts: tuple[Part, ...]

    @property
    def capturable(self) -> bool:
        """Whether nothing was found that breaks or corrupts a capture."""
        return not any(ailment.harm in (Harm.BREAKS, Harm.CORRUPTS) for ailment in self.ailments)


_REMEDIES = (
    (("_local_scalar_dense", "is_nonzero", "equal"), "keep the value on the device (torch.where, a mask)"),
    (("nonzero", "unique", "masked_select", "index"), "use a mask, torch.where or a variant of fixed size"),
    (
        ("_to_copy", "copy_", "_copy_from"),
        "make the tensor on the device (torch.full), or copy it beforehand",
    ),
)
_REMEDY = "keep values on the device, or do this before the capture"
_BRANCHES = (
    "runs in one call and not in another of the same length, but a graph replays one of them; replace the "
    "Python branch by torch.where, and keep no state between calls"
)
_GROWS = (
    "has other shapes in the next call of the same length, but a graph's shapes are fixed; give what grows "
    "its final size and write into it (a static cache)"
)
_BY_LENGTH = (
    "depends on the prompt's length, so that each length needs a graph of its own; do not pad across this "
    "length, or capture both sides"
)
_BAKED = (
    "takes another number in the next call of the same length, but a graph keeps that of the capture; hold "
    "the number in a tensor on the device"
)
_CARRIES = (
    "reads a tensor that the call before had made, but every replay reads the one of the capture; keep state "
    "in one tensor and write into it (copy_)"
)
_WRONG = (
    "the replay gives other values than eager on other inputs, so something is baked in or rebound; write "
    "into tensors in place (copy_) and keep no Python state between calls"
)


def diagnose(model: nn.Module, prompts: Sequence[Tensor], backend: Backend) -> Diagnosis:
    """Run requests eagerly, try a capture, and say what each part of the model does where it fails.

    Args:
        model: a causal LM, called as `model(input_ids=ids, use_cache=False)`.
        prompts: token ids, shape (1, n), the first two of one length; others may have any.
        backend: real graphs on CUDA, the simulation elsewhere.

    Raises:
        LaunchgapError: fewer than two prompts or of different lengths, or a request that fails eagerly.
    """
    if len(prompts) < 2 or prompts[0].shape != prompts[1].shape:
        raise LaunchgapError("doctor: needs two prompts of one length or more; give --requests 2 or more")
    requests = [Inputs((), {"input_ids": ids.to(backend.device), "use_cache": False}) for ids in prompts]
    _require_eager(model, requests)
    eager = [watch(partial(_ask, model, r), backend.device, as_capturing=False) for r in requests[:2]]
    ailments, trial = examine(model, requests, backend)
    blocking = {(ailment.operation, ailment.place) for ailment in ailments}
    waits = [a for a in _stopped(eager) if (a.operation, a.place) not in blocking]
    ailments += [replace(ailment, harm=Harm.EAGER_ONLY) for ailment in waits]
    ailments.sort(key=lambda ailment: list(Harm).index(ailment.harm))
    found = Diagnosis(tuple(int(ids.shape[1]) for ids in prompts), tuple(ailments), trial, ())
    return found if found.capturable else replace(found, parts=_parts(model, requests[:2], backend))


def examine(module: nn.Module, requests: Sequence[Inputs], backend: Backend) -> tuple[list[Ailment], Trial]:
    """What keeps one module from being captured on the first request, and how the trial capture went."""
    watched: list[Watched] = []
    for request in requests:
        earlier = watched[-1] if watched else None
        call = partial(_ask, module, request)
        watched.append(watch(call, backend.device, as_capturing=True, earlier=earlier))
    ailments = _stopped(watched)
    places = {ailment.place for ailment in ailments}
    alike = len(requests) > 1 and requests[0].fits(requests[1])
    if alike:
        ailments += _changes(watched[0].steps, watched[1], places)
    ailments += _by_length(watched[2 if alike else 1 :], watched[0].steps)
    trial = try_capture(partial(_ask, module), requests[0], requests[1] if alike else None, backend)
    return _judged(ailments, trial, places), trial


def _ask(module: nn.Module, inputs: Inputs) -> object:
    return module(*inputs.args, **inputs.kwargs)


@torch.no_grad()
def _require_eager(model: nn.Module, requests: Sequence[Inputs]) -> None:
    """Run each request once: what fails eagerly is no matter of captures, and lazy state is made here."""
    for request in requests:
        try:
            _ask(model, request)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise LaunchgapError(
                f"model {type(model).__name__}: an eager request fails at {blame(error)}; mend that first"
            ) from error


def _stopped(watched: Sequence[Watched]) -> list[Ailment]:
    stops: Counter[Stop] = Counter()
    for each in watched:
        stops.update(each.stops)
    found = []
    for stop, count in stops.items():
        harm = Harm.CORRUPTS if stop.why.startswith(LEGACY_STREAM) else Harm.BREAKS
        why = stop.why if "; " in stop.why else f"{stop.why}; {_remedy(stop.operation)}"
        found.append(Ailment(harm, stop.operation, stop.place, why, count / len(watched)))
    return found


def _remedy(operation: str) -> str:
    name = operation.rpartition(".")[2]
    return next((remedy for names, remedy in _REMEDIES if name in names), _REMEDY)


def _changes(first: Sequence[Step], second: Watched, places: set[str]) -> list[Ailment]:
    """What shows that two calls on other values are not the same work, unless a named place explains it."""
    found = {
        step.place: Ailment(Harm.CORRUPTS, step.operation, step.place, _CARRIES) for step in second.carried
    }
    index = _first_difference(first, second.steps)
    if index is None:
        return list(found.values())
    steps = second.steps if index < len(second.steps) else first
    step = steps[index]
    is_same = index < min(len(first), len(second.steps)) and first[index][:2] == step[:2]
    why = _BRANCHES if not is_same else _BAKED if first[index].shapes == step.shapes else _GROWS
    if step.place not in places and (why is _GROWS or not places):
        found[step.place] = Ailment(Harm.CORRUPTS, step.operation, step.place, why)
    return list(found.values())


def _by_length(others: Sequence[Watched], first: Sequence[Step]) -> list[Ailment]:
    """The first operation that another length runs and the first one does not, or the reverse."""
    names = [step._replace(shapes=(), numbers=()) for step in first]
    found: dict[str, Ailment] = {}
    for other in others:
        steps = [step._replace(shapes=(), numbers=()) for step in other.steps]
        index = _first_difference(names, steps)
        if index is not None:
            step = (steps if index < len(steps) else names)[index]
            found.setdefault(step.place, Ailment(Harm.CHECK, step.operation, step.place, _BY_LENGTH))
    return list(found.values())


def _first_difference(first: Sequence[Step], second: Sequence[Step]) -> int | None:
    for index, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return index
    return None if len(first) == len(second) else min(len(first), len(second))


def _judged(ailments: list[Ailment], trial: Trial, places: set[str]) -> list[Ailment]:
    """The ailments in the light of the trial: what it says itself, and what it shows to do no harm."""
    if trial.refused is not None and not any(place in trial.refused for place in places):
        told = _REFUSED.fullmatch(trial.refused)
        if told is None:
            return [*ailments, Ailment(Harm.BREAKS, "trial capture", "an unknown line", trial.refused)]
        operation = "trial capture" if told["operation"] == "capture failed" else told["operation"]
        return [*ailments, Ailment(Harm.BREAKS, operation, told["place"], told["why"])]
    if trial.refused is None and not trial.is_wrong:
        return [
            replace(ailment, harm=Harm.CHECK) if ailment.why.startswith(WAITS) else ailment
            for ailment in ailments
        ]
    if trial.is_wrong and not any(ailment.harm is Harm.CORRUPTS for ailment in ailments):
        return [*ailments, Ailment(Harm.CORRUPTS, "replay", "an unknown line", _WRONG)]
    return ailments


def _parts(model: nn.Module, requests: Sequence[Inputs], backend: Backend) -> tuple[Part, ...]:
    """Layers and what stands beside them, each by itself; of those that fail, what they are made of too."""
    found: list[Part] = []
    for name, part, inputs in tqdm(
        _recorded(model, parts_of(model), requests), "parts", unit="part", delay=2, disable=None
    ):
        found.append(_part(name, part, inputs, backend))
        if found[-1].capturable is False:
            within = _recorded(model, inner_parts(name, part), requests)
            found += [_part(*each, backend) for each in within]
    return tuple(found)


def _recorded(
    model: nn.Module, parts: dict[str, nn.Module], requests: Sequence[Inputs]
) -> list[tuple[str, nn.Module, list[Inputs]]]:
    calls = [partial(_ask, model, r) for r in requests]
    inputs = record_inputs(parts, calls)
    return [(name, part, inputs[name]) for name, part in parts.items()]


def _part(name: str, part: nn.Module, inputs: list[Inputs], backend: Backend) -> Part:
    if not inputs:
        return Part(name, None, "no request calls it")
    ailments, _ = examine(part, inputs, backend)
    bad = [ailment for ailment in ailments if ailment.harm in (Harm.BREAKS, Harm.CORRUPTS)]
    if not bad:
        return Part(name, True, "")
    worst = bad[0]
    return Part(name, False, f"{worst.operation} at {worst.place}")
