"""Whether a graph can be taken to do eager's work, from the match of their kernels and what escaped."""

from __future__ import annotations

import pandas as pd

from analysis.equivalence import Match
from analysis.launches import LaunchKind
from contract import LaunchgapError

_FUSED = "triton_"


def alarms(matched: pd.DataFrame, escaped: pd.DataFrame) -> tuple[str, ...]:
    """Why the graph cannot be taken to do eager's work, each in a few words; empty where it can."""
    missing = matched[(matched["match"] == Match.MISSING) & (matched["reason"] == "")]
    # Fills come and go with the matrix library's choice of kernel, also where no place of theirs shows it.
    missing = missing[missing["kind"] != LaunchKind.MEMSET]
    beside = escaped[escaped["expected"] == ""]
    no_replay = beside["when"] == "no replay"
    told = (
        (
            missing["eager_calls_per_request"].sum(),
            missing["eager_us_per_request"].sum(),
            "missing for no known reason",
        ),
        (*_sums(beside[~no_replay]), "escaped the replay"),
        (*_sums(beside[no_replay]), "ran in requests without a replay"),
    )
    return tuple(
        f"{calls:,.4g} operation{'' if calls == 1 else 's'} per request ({us:,.1f} us) {what}"
        for calls, us, what in told
        if calls
    )


def verdict(matched: pd.DataFrame, alarmed: tuple[str, ...]) -> str:
    """What the match comes to in one line: the alarms, or how much of eager's kernels the graph runs."""
    if alarmed:
        return "; ".join(alarmed)
    kernels = matched[matched["kind"] == LaunchKind.KERNEL]
    counts = ["eager_calls_per_request", "graph_calls_per_request"]
    same, changed, missing, extra = (
        float(kernels.loc[kernels["match"] == one, counts].sum().max())
        for one in (Match.SAME, Match.CHANGED, Match.MISSING, Match.EXTRA)
    )
    if not (changed or missing or extra):
        return "the graph runs eager's kernels and no others, as far as names and shapes tell"
    return (
        f"the graph differs from eager for known reasons alone: {same:,.4g} kernels are the same, "
        f"{changed:,.4g} have another shape, {missing:,.4g} are missing, {extra:,.4g} are extra"
    )


def check_related(matched: pd.DataFrame, eager: str) -> None:
    """Refuse a match of two traces that cannot be of one model; `eager` is what a complaint calls the first.

    Raises:
        LaunchgapError: they have no kernel in common.
    """
    kernels = matched[matched["kind"] == LaunchKind.KERNEL]
    common = kernels["match"].isin((Match.SAME, Match.CHANGED)).any()
    # A compiler may leave no kernel as it was.
    is_fused = kernels["full_name"].astype(str).str.contains(_FUSED, regex=False).any()
    if not common and not is_fused:
        raise LaunchgapError(
            f"has no kernel in common with {eager}, so they are of different models or ranges; give two "
            "traces of one model"
        )


def _sums(escaped: pd.DataFrame) -> tuple[float, float]:
    return float(escaped["calls_per_request"].sum()), float(escaped["us_per_request"].sum())
