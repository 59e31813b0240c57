"""The checks behind `python -m inference.parity`: a graphed runner on everything that goes wrong in silence.

Answers are compared with eager's, see `inference.judge`. What must not change them is judged bit by bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product

import torch
from tqdm import tqdm
from transformers import PreTrainedModel

from contract import LaunchgapError
from inference.calling import Logits, ModelCall
from inference.forward import GraphedForward
from inference.judge import Judge
from inference.loading import float32_copy
from inference.poison import poison
from inference.request import random_prompt
from inference.staging import PaddingSide
from inference.subject import Check, Subject

MIXED_REQUESTS = 20

OVER_PADDING = ", or eager over the padding"
"""What the rule of a check adds if an answer passed by it alone; see `inference.judge`."""

MOST_BY_PADDING = 0.5
"""Share of the answers of a check that may pass as eager's over the padding alone."""


def run_battery(
    model: PreTrainedModel,
    lengths: Sequence[int] | None = None,
    seed: int = 0,
    *,
    strict: bool = False,
    fused: bool = False,
) -> list[Check]:
    """All checks, for both kinds of logits and both padding sides.

    Graphs are kept whether or not they are faster. With `strict` a length that cannot be captured is an
    error; otherwise it is served, and checked, eagerly, and the first check of its runner has a note.

    Raises:
        LaunchgapError: the model or the lengths cannot be used, or there is no memory for the checks.
    """
    reference = None if model.dtype is torch.float32 else _float32_reference(model)
    checks: list[Check] = []
    kinds: list[tuple[Logits, PaddingSide]] = list(product(("last", "all"), ("right", "left")))
    try:
        for logits, side in tqdm(kinds, desc="proving", unit="runner", delay=2, disable=None):
            with GraphedForward(
                model,
                lengths,
                logits=logits,
                padding_side=side,
                strict=strict,
                fused=fused,
                only_if_faster=False,
            ) as forward:
                checks += check_runner(forward, reference, seed)
    except torch.cuda.OutOfMemoryError as error:
        raise LaunchgapError("out of GPU memory for the checks; use fewer or shorter lengths") from error
    return checks


def check_runner(
    forward: GraphedForward, reference: PreTrainedModel | None = None, seed: int = 0
) -> list[Check]:
    """All checks of one runner; `reference` is an fp32 copy of a model in half precision."""
    generator = torch.Generator().manual_seed(seed)
    vocabulary = ModelCall(forward.model, forward.logits).vocabulary
    subject = Subject(
        f"{forward.logits}, {forward.padding_side}",
        forward,
        Judge(forward.model, reference, forward.logits),
        lambda n: random_prompt(n, vocabulary, generator),
        tuple(entry.length for entry in forward.ledger),
    )
    return list(_run_checks(subject))


def _float32_reference(model: PreTrainedModel) -> PreTrainedModel:
    try:
        return float32_copy(model)
    except torch.cuda.OutOfMemoryError as error:
        raise LaunchgapError(
            "no GPU memory for an fp32 reference beside the model; use a smaller model"
        ) from error


def _run_checks(subject: Subject) -> Iterator[Check]:
    yield _captured(subject)
    top, lengths = subject.lengths[-1], subject.lengths
    edges = sorted({n for length in lengths for n in (length - 1, length, length + 1) if 1 <= n <= top})
    subject.judge.calibrate([subject.prompt(n) for n in (1, 1, 1, *edges)])
    yield _against_eager(subject, "fresh inputs", [subject.middle] * 5)
    yield _against_eager(subject, "one token", [1] * 3)
    yield _against_eager(subject, "lengths at bucket edges", edges)
    yield _against_eager(subject, "full length", [top] * 2)
    yield _mixed_lengths(subject)
    yield _replay_twice(subject)
    yield _another_length_between(subject)
    yield _input_mutated(subject)
    yield _output_copied(subject)
    yield _output_shared(subject)
    yield from _poisoned(subject)
    yield _padded_by_the_caller(subject)
    yield _other_kinds_of_ids(subject)


def _captured(subject: Subject) -> Check:
    entries = subject.forward.ledger
    eager = [entry for entry in entries if entry.path == "eager"]
    graphs = ", ".join(str(entry.length) for entry in entries if entry.path == "graph") or "none"
    return Check(
        subject.label,
        "captured lengths",
        graphs,
        None,
        "a graph, or a reason",
        all(entry.reason for entry in eager),
        tuple(f"length {entry.length} is left eager: {entry.reason}" for entry in eager)
        + tuple(f"length {entry.length} is plain: {entry.not_fused}" for entry in entries if entry.not_fused),
    )


def _against_eager(subject: Subject, name: str, sizes: Sequence[int]) -> Check:
    found = []
    for n in sizes:
        prompt = subject.prompt(n)
        found.append(subject.judge.compare(prompt, subject.forward(prompt), partial(subject.padded, prompt)))
    distinct = sorted(set(sizes))
    shown = ", ".join(map(str, distinct)) if len(distinct) <= 4 else f"{distinct[0]} to {distinct[-1]}"
    by_padding = sum(verdict.by_padding for verdict in found)
    return Check(
        subject.label,
        name,
        f"{len(sizes)} prompts of {shown} tokens",
        max(verdict.difference for verdict in found),
        subject.judge.rule + (OVER_PADDING if by_padding else ""),
        all(verdict.passed for verdict in found) and by_padding <= MOST_BY_PADDING * len(found),
        (f"{subject.label}, {name}: {by_padding} of {len(sizes)} are eager's over the same padding",)
        if by_padding
        else (),
    )


def _mixed_lengths(subject: Subject) -> Check:
    draw = torch.Generator().manual_seed(subject.lengths[-1])
    sizes = torch.randint(1, subject.lengths[-1] + 1, (MIXED_REQUESTS,), generator=draw).tolist()
    return _against_eager(subject, "mixed lengths, random order", sizes)


def _replay_twice(subject: Subject) -> Check:
    prompts = [subject.prompt(n) for n in (subject.middle, subject.lengths[-1], 1)]
    pairs = [(subject.forward(prompt), subject.forward(prompt)) for prompt in prompts]
    return subject.bitwise("replay twice", "3 prompts", pairs)


def _another_length_between(subject: Subject) -> Check:
    pairs = []
    for length in subject.lengths:
        prompt = subject.prompt(max(1, length - 1))
        before = subject.forward(prompt)
        for other in subject.lengths:
            subject.forward(subject.prompt(other))
        pairs.append((before, subject.forward(prompt)))
    return subject.bitwise("other lengths between", f"{len(pairs)} prompts", pairs)


def _input_mutated(subject: Subject) -> Check:
    prompt = subject.prompt(subject.middle)
    original = prompt.clone()
    answer = subject.forward(prompt)
    prompt.zero_()
    return subject.bitwise(
        "input mutated after the call", "1 prompt", [(answer.clone(), subject.forward(original))]
    )


def _output_copied(subject: Subject) -> Check:
    kept = subject.forward(subject.prompt(subject.middle))
    before = kept.clone()
    subject.forward(subject.prompt(subject.middle))
    return subject.bitwise("copy: later calls leave an answer alone", "2 prompts", [(kept, before)])


def _output_shared(subject: Subject) -> Check:
    """Documented: a view is overwritten by the next call. A shared address shows that nothing was copied."""
    forward = subject.forward
    rule = "one address, new values"
    if not any(entry.path == "graph" for entry in forward.ledger):
        return Check(subject.label, "zero copy: the view is reused", "no graph", None, rule, passed=True)
    length = next(entry.length for entry in forward.ledger if entry.path == "graph")
    with GraphedForward(
        forward.model,
        (length,),
        logits=forward.logits,
        padding_side=forward.padding_side,
        copy=False,
        only_if_faster=False,
    ) as shared:
        first = shared(subject.prompt(length))
        before = first.clone()
        second = shared(subject.prompt(length))
        same = first.data_ptr() == second.data_ptr() and torch.equal(first, second)
        return Check(
            subject.label,
            "zero copy: the view is reused",
            f"2 prompts of {length} tokens",
            None,
            rule,
            same and not torch.equal(first, before),
        )


def _poisoned(subject: Subject) -> Iterator[Check]:
    pairs = []
    ladder = subject.ladder
    pool_bytes = sum(rung.pool_bytes for rung in ladder.rungs.values())
    for length, rung in ladder.rungs.items():
        for n in dict.fromkeys((max(1, length - 1), length)):
            prompt = subject.prompt(n)
            before = subject.forward(prompt)
            poison(rung, ladder.backend, pool_bytes)
            pairs.append((before, subject.forward(prompt)))
    if pairs:
        yield subject.bitwise("poisoned inputs, output and pool", f"{len(pairs)} prompts", pairs)


def _padded_by_the_caller(subject: Subject) -> Check:
    n, extra = subject.middle, min(3, subject.lengths[-1] - subject.middle)
    prompt, junk = subject.prompt(n), subject.prompt(max(1, extra))
    ones, zeros = torch.ones_like(prompt), torch.zeros_like(junk)
    wanted = subject.forward(prompt)
    pairs = [(subject.forward(prompt, ones), wanted)]
    for ids, mask in (((prompt, junk), (ones, zeros)), ((junk, prompt), (zeros, ones))):
        pairs.append((subject.forward(torch.cat(ids, 1), torch.cat(mask, 1)), wanted))
    return subject.bitwise("mask of ones, padded right, padded left", "1 prompt", pairs)


def _other_kinds_of_ids(subject: Subject) -> Check:
    prompt = subject.prompt(subject.middle)
    wanted = subject.forward(prompt)
    strided = prompt.repeat_interleave(2, dim=1)[:, ::2]
    pairs = [
        (subject.forward(ids), wanted) for ids in (prompt[0], prompt.int(), prompt.to(wanted.device), strided)
    ]
    return subject.bitwise("shape (n,), int32, on the device, strided", "1 prompt", pairs)
