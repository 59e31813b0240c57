"""The calibration's measuring, run for real on the CPU's stand-in for graphs."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from contract import CaptureError, LaunchgapError
from contract.calibration import LAYER
from inference.backends import SimulationBackend
from inference.calibration import require_gpu
from inference.calibration_layers import layer_probes, with_kinds
from inference.calibration_probes import SMALL, Probe, hold, make_probes
from inference.calibration_replays import (
    CalibrationSettings,
    close,
    replay_series,
    series_of,
    size_fields,
)
from inference.calibration_states import Surroundings
from inference.calibration_traced import Stretch, durations_of, traced_durations_us

CPU = torch.device("cpu")
RECORDED = Path(__file__).resolve().parents[1] / "data" / "chrome" / "h200-gpt2-fp32-eager.torch.json.gz"
KINDS = (("small", "kernel"), ("layer", LAYER))
QUICK = CalibrationSettings(
    sizes=(1, 6), pair_sizes=(4,), rounds=3, stretches=2, eager_steps=1, warmup_s=0.0, tokens=(5,)
)


def test_a_chain_has_as_many_steps_as_asked_for_each_knowing_its_place() -> None:
    made: list[int] = []
    Probe("counted", "kernel", ("kernel", "memset"), made.append).chain(3)()
    assert made == [0, 1, 2]


def test_every_probe_does_its_work_on_the_cpu_too() -> None:
    probes = make_probes(CPU)
    assert [probe.name for probe in probes] == ["empty", SMALL, "wide", "memset", "memcpy"]
    assert {probe.kind for probe in probes} == {"kernel", "memset", "memcpy"}
    for probe in probes:
        assert probe.kinds[-1] == probe.kind
        probe.chain(2)()
    hold(CPU)


def test_every_graph_is_replayed_in_every_round_and_freed() -> None:
    series = replay_series(SimulationBackend(), make_probes(CPU), QUICK)
    assert [(one.probe.name, one.steps) for one in series] == [
        *((name, steps) for name in ("empty", SMALL, "wide") for steps in (1, 6)),
        *((name, 2) for name in ("memset", "memcpy")),
    ]
    for one in series:
        fields = size_fields(one, len(one.probe.kinds))
        assert fields["nodes"] == (one.steps if one.probe.kind == "kernel" else 4)
        for key in ("event_us", "wall_us", "launch_us", "queued_us"):
            samples = fields[key]["samples"]
            assert len(samples) == QUICK.rounds
            assert min(samples) > 0
        # The event lies inside the wall time of the same request.
        assert all(event <= wall for event, wall in zip(one.event_us, one.wall_us, strict=True))
    close(series)
    with pytest.raises(CaptureError, match="holds no capture"):
        series[0].graph.replay()


def test_a_layer_probe_runs_one_layer_after_the_other_with_weights_of_its_own() -> None:
    single, half = layer_probes(CPU, rows=2, layers=2)
    assert (single.name, half.name) == ("layer-float32", "layer-bfloat16")
    assert single.kind == half.kind == LAYER
    hidden = single.step(0)
    assert isinstance(hidden, torch.Tensor)
    first = hidden.clone()
    assert single.step(1) is hidden
    assert hidden.shape == (1, 2, 1024)
    assert hidden.isfinite().all()
    assert not torch.equal(hidden, first)


def test_layers_are_replayed_in_sizes_of_whole_layers() -> None:
    settings = replace(QUICK, layers=(1, 2), rounds=2)
    series = replay_series(SimulationBackend(), layer_probes(CPU, rows=2, layers=1)[:1], settings)
    assert [size_fields(one, 12)["nodes"] for one in series] == [12, 24]
    known = Probe("known", "kernel", ("kernel",), lambda _: None)
    assert with_kinds(known) is known


def test_of_a_layer_all_operations_count() -> None:
    trace = chrome(("kernel", 1, 1.0), ("gpu_memset", 2, 2.0), ("kernel", 3, 3.0), ("gpu_memset", 4, 4.0))
    stretch = Stretch("layer", LAYER, ("kernel", "memset"), 2)
    assert durations_of(trace, [stretch]) == {"layer": [1.0, 2.0, 3.0, 4.0]}


def test_an_eager_pass_comes_before_each_sample_and_a_change_before_each_stretch_but_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    monkeypatch.setattr(Surroundings, "eager", lambda _: done.append("eager"))
    monkeypatch.setattr(Surroundings, "change", lambda _: done.append("change"))
    total = torch.zeros(1)
    probe = Probe("sum", "kernel", ("kernel",), lambda _: total.add_(1.0))
    replay_series(SimulationBackend(), [probe], replace(QUICK, sizes=(1, 2), rounds=7, stretches=3))
    # Of 7 rounds in 3 stretches the second begins with the fourth round, the third with the sixth.
    assert done == [*["eager"] * 6, "change", *["eager"] * 4, "change", *["eager"] * 4]


def test_the_surroundings_run_layers_if_there_are_any() -> None:
    ran: list[str] = []
    probes = [Probe(name, kind, (), lambda _, name=name: ran.append(name)) for name, kind in KINDS]  # type: ignore[misc,arg-type]
    surroundings = Surroundings(SimulationBackend(), probes, 2, random.Random(0))
    surroundings.eager()
    assert ran == ["layer"] * 2
    surroundings.close()


@pytest.mark.parametrize("seed", range(4))
def test_changes_of_the_surroundings_leave_captured_graphs_as_they_are(seed: int) -> None:
    total, other = torch.zeros(1), torch.zeros(1)
    backend = SimulationBackend()
    kept = backend.capture(lambda: total.add_(1.0)).graph
    probe = Probe("sum", "kernel", ("kernel",), lambda _: other.add_(1.0))
    surroundings = Surroundings(backend, [probe], 2, random.Random(seed))
    for _ in range(5):
        surroundings.change()
    surroundings.close()
    before = total.item()
    kept.replay()
    assert total.item() - before == 1
    assert other.item() > 0


def test_a_replay_does_the_work_of_its_chain() -> None:
    total = torch.zeros(1)
    probe = Probe("sum", "kernel", ("kernel",), lambda _: total.add_(1.0))
    series = replay_series(SimulationBackend(), [probe], replace(QUICK, sizes=(5,), pair_sizes=()))
    before = total.item()
    series[0].graph.replay()
    assert total.item() - before == 5


def test_a_series_keeps_its_samples_in_order() -> None:
    assert series_of([3.0, 1.0, 2.0]) == {"median": 2.0, "samples": [3.0, 1.0, 2.0]}


def chrome(*operations: tuple[str, float, float]) -> dict[str, object]:
    events = [{"ph": "X", "cat": cat, "ts": ts, "dur": dur} for cat, ts, dur in operations]
    return {"traceEvents": [{"ph": "M", "name": "process_name"}, {"cat": "cpu_op", "ts": 0}, *events]}


def test_durations_are_told_apart_by_their_order() -> None:
    trace = chrome(
        *(("kernel", 40, 4.0), ("kernel", 10, 1.0), ("kernel", 20, 2.0)),
        *(("gpu_memset", 30, 3.0), ("gpu_memset", 50, 5.0)),
    )
    stretches = (Stretch("a", "kernel", ("kernel",), 1), Stretch("b", "memset", ("kernel", "memset"), 2))
    assert durations_of(trace, stretches) == {"a": [1.0], "b": [3.0, 5.0]}


@pytest.mark.parametrize(
    ("operations", "said"),
    [
        ((), "nothing"),
        ((("kernel", 1.0, 1.0),), "1 x kernel"),
        ((("kernel", 1.0, 1.0), ("gpu_memset", 2.0, 1.0)), "1 x kernel and 1 x memset"),
        ((("kernel", 1.0, 1.0), ("kernel", 2.0, 1.0), ("kernel", 3.0, 1.0)), "3 x kernel"),
    ],
)
def test_other_work_than_was_launched_is_refused(
    operations: tuple[tuple[str, float, float], ...], said: str
) -> None:
    with pytest.raises(LaunchgapError, match=rf"recorded {said} where 2 x kernel were launched"):
        durations_of(chrome(*operations), [Stretch("a", "kernel", ("kernel",), 2)])


def test_a_copy_that_a_graph_makes_by_a_kernel_is_the_copy() -> None:
    trace = chrome(("kernel", 1, 1.0), ("kernel", 2, 2.0))
    stretch = Stretch("copy", "memcpy", ("kernel", "memcpy"), 1)
    assert durations_of(trace, [stretch]) == {"copy": [2.0]}
    with pytest.raises(LaunchgapError, match="recorded 2 x kernel where 1 x kernel and 1 x memset"):
        durations_of(trace, [Stretch("fill", "memset", ("kernel", "memset"), 1)])


def test_a_real_recording_is_read() -> None:
    recorded: dict[str, Any] = json.loads(gzip.decompress(RECORDED.read_bytes()))
    own = [one for one in recorded["traceEvents"] if one.get("cat") == "kernel"]
    found = durations_of({"traceEvents": own}, [Stretch("all", "kernel", ("kernel",), len(own))])
    assert sum(found["all"]) == pytest.approx(sum(one["dur"] for one in own))
    assert min(found["all"]) > 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks what a host without a GPU is told")
def test_a_host_without_a_gpu_is_told_so() -> None:
    with pytest.raises(LaunchgapError, match="sees no GPU"):
        require_gpu()
    with pytest.raises(LaunchgapError, match=r"CUPTI|GPU operations"):
        traced_durations_us(lambda: None, [Stretch("a", "kernel", ("kernel",), 1)])
