"""What comes before the first request, when it has paid, and the floor: on records with known answers."""

from __future__ import annotations

import pytest

from analysis.costs import (
    floor_sentence,
    last_logits_sentence,
    other_streams_sentence,
    pays_after_requests,
    set_up_s,
)
from contract import FloorFields, LatencyRecord
from tests.analysis.report_samples import failed, latency_record, peers_record


def record(eager_ms: list[float], other_ms: list[float], **fields: object) -> LatencyRecord:
    made = latency_record(medians_ms={"eager": 1.0, "graph": 1.0})
    made["strategies"]["eager"]["wall_ms"] = eager_ms
    made["strategies"]["graph"] |= {"wall_ms": other_ms, **fields}  # type: ignore[typeddict-item]
    return made


@pytest.mark.parametrize(
    ("other_ms", "compile_s", "capture_s", "requests"),
    [
        (3.0, None, 1.0, 500),
        (3.0, 1.0, 1.0, 1000),
        (3.0, 1.0, None, 500),
        (4.9, None, 1.0, 10_001),  # 5 - 4.9 is a little less than a tenth
        (2.0, None, 1.0, 334),
        (5.0, None, 1.0, "never"),
        (9.0, 30.0, None, "never"),
        (3.0, None, None, None),
    ],
)
def test_set_up_over_what_a_request_saves(
    other_ms: float, compile_s: float | None, capture_s: float | None, requests: int | str | None
) -> None:
    made = record([5.0, 1.0, 99.0], [other_ms] * 3, compile_s=compile_s, capture_s=capture_s)
    assert pays_after_requests(made, "graph") == requests


def test_wall_time_decides_and_not_the_gpus() -> None:
    made = record([5.0] * 3, [6.0] * 3, capture_s=1.0, event_ms=[0.1] * 3)
    assert pays_after_requests(made, "graph") == "never"


def test_nothing_to_tell_without_a_measurement() -> None:
    assert pays_after_requests(latency_record(), "eager") is None
    assert pays_after_requests(latency_record(simulated=True), "graph") is None
    made = latency_record()
    made["strategies"]["graph"] = failed("no memory")
    assert pays_after_requests(made, "graph") is None
    made = latency_record()
    del made["strategies"]["eager"]
    assert pays_after_requests(made, "graph") is None


def test_set_up_of_a_record_from_before_there_were_compilers() -> None:
    fields = latency_record()["strategies"]["graph"]
    assert "compile_s" not in fields
    assert set_up_s(fields) == 0.31


def test_last_logits_are_told_with_their_counterpart() -> None:
    assert last_logits_sentence(latency_record()) is None
    sentence = last_logits_sentence(peers_record())
    assert sentence is not None
    assert "graph_last, " in sentence
    assert "eager_unmasked" not in sentence
    assert sentence.endswith("their eager counterpart is eager_last.")


def test_strategies_that_make_other_graphs_slower_are_named() -> None:
    assert other_streams_sentence(latency_record()) is None
    made = peers_record()
    assert str(other_streams_sentence(made)).startswith(
        "compiled and graphed_callable run kernels on streams"
    )
    assert other_streams_sentence(made | {"simulated": True}) is None
    del made["strategies"]["compiled"]
    assert str(other_streams_sentence(made)).startswith("graphed_callable runs kernels on streams")


def test_the_floor_is_told_with_each_median_as_a_multiple() -> None:
    made = record([1.0], [1.0], event_ms=[0.75, 0.5, 0.25])
    made["floor"] = {"bandwidth_bytes_per_s": 4e12, "weight_bytes_read": 400 << 20, "floor_ms": 0.1}
    sentence = floor_sentence(made)
    assert sentence is not None
    assert "400 MiB of weights once takes 0.100 ms at the 4.00 TB/s" in sentence
    assert sentence.endswith("graph 5.0.")


@pytest.mark.parametrize(
    "floor",
    [
        None,
        {"bandwidth_bytes_per_s": None, "weight_bytes_read": 400, "floor_ms": None},
        {"bandwidth_bytes_per_s": 4e12, "weight_bytes_read": None, "floor_ms": None},
    ],
)
def test_no_floor_where_it_was_not_measured(floor: FloorFields | None) -> None:
    made = latency_record()
    if floor is not None:
        made["floor"] = floor
    assert floor_sentence(made) is None
