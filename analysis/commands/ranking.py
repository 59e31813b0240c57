"""Which NVTX ranges of a foreign program look like a request.

What covers the launches is worth looking at, but a layer covers them as well as the request around it, and
more of them if a warm-up runs the same layers. So cover alone does not decide: a range that lies in another
comes after it. What occurs once, as a `main` around everything, is never a request; in a trace of several
processes it occurs once in each.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.containment import Spans, contained

RANKING = (
    "Proposed are ranges that repeat within a process and launch GPU work in at least half of their "
    "instances. First comes what covers most of the trace's launches (in whole percent), but a range of "
    "which three in four instances lie in another proposed one comes after that: the outermost is the "
    "closest to one request."
)

_COMPARED = 16
"""So many ranges, those that cover most, are looked at for lying in each other."""

_INSIDE = 0.75
"""A range lies in another if this share of its instances does: a warm-up may run some elsewhere."""

BoolArray = npt.NDArray[np.bool_]


def ranked(table: pd.DataFrame, instances: pd.DataFrame, code: npt.NDArray[np.int64]) -> pd.DataFrame:
    """Ranges in order, those that are proposed first, with `rank` from 1 (NA: not proposed).

    Args:
        table: ranges by domain and name; instances, launching_instances, launch_share_percent, total_us.
        instances: every complete range; start_ns, end_ns, thread, process.
        code: row in `table` of each of them; shape (n,).
    """
    processes = instances["process"].groupby(code).nunique().reindex(range(len(table)), fill_value=0)
    repeats = (table["instances"] > processes) & (table["launching_instances"] * 2 >= table["instances"])
    table = table.assign(
        proposed=repeats,
        share=table["launch_share_percent"].round(0).where(repeats),
        # Ranges that are not proposed follow by time alone.
        repeats=table["instances"].where(repeats),
    )
    keys = ["proposed", "share", "repeats", "total_us", "domain", "name"]
    table = table.sort_values(keys, ascending=[False] * 4 + [True] * 2)
    compared = table.index.to_numpy(dtype=np.int64)[table["proposed"].to_numpy()][:_COMPARED]
    first = compared[_outer_first(_lying_in(compared, instances, code))]
    table = table.loc[[*first, *table.index[len(first) :]]].reset_index(drop=True)
    rank = pd.Series(np.arange(1, len(table) + 1), dtype="Int64").where(table["proposed"])
    table.insert(0, "rank", rank)
    return table.drop(columns=["proposed", "share", "repeats"])


def _lying_in(
    compared: npt.NDArray[np.int64], instances: pd.DataFrame, code: npt.NDArray[np.int64]
) -> BoolArray:
    """Whether the first range lies in the second; shape (m, m). Ranges of one span lie in neither."""
    place = pd.Index(compared).get_indexer(pd.Index(code))
    kept = np.flatnonzero(place >= 0)
    spans, place = Spans.of(instances.iloc[kept]), place[kept]
    one, around = contained(spans, spans)
    # An instance counts once, however often the outer range nests in itself.
    distinct = np.unique(one * np.int64(max(len(compared), 1)) + place[around])
    inner, outer = np.divmod(distinct, max(len(compared), 1))
    counts = np.zeros((len(compared), len(compared)))
    np.add.at(counts, (place[inner], outer), 1)
    share = counts / np.maximum(np.bincount(place, minlength=len(compared)), 1)[:, None]
    inside = share >= _INSIDE
    return np.asarray(inside & ~inside.T)


def _outer_first(inside: BoolArray) -> npt.NDArray[np.int64]:
    """An order in which each range comes after those that it lies in, and otherwise as early as it can."""
    left, order = list(range(len(inside))), []
    while left:
        # Should ranges lie in each other in a circle, the first one breaks it.
        free = next((one for one in left if not inside[one, left].any()), left[0])
        order.append(free)
        left.remove(free)
    return np.array(order, dtype=np.int64)
