"""Which streams captures take. Streams are stand-ins here; tests/gpu/test_lanes.py has real ones."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace

import pytest
import torch

from contract import CaptureError
from inference import lanes

DEVICE = torch.device("cuda", 0)


@pytest.fixture(params=[2**25, 0], ids=["buffers", "no-buffers"])
def streams(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch does it: a few streams for each priority, handed out in turn, each with a buffer or none."""
    turn, asked = count(), count()

    def stream(device: torch.device, priority: int = 0) -> SimpleNamespace:
        return SimpleNamespace(cuda_stream=1 - 10 * priority + next(turn) % 3, device=device)

    monkeypatch.setattr(lanes, "_STREAMS", 3)
    monkeypatch.setattr(lanes, "_in_use", set())
    monkeypatch.setattr(lanes.Lane, "prepare", lambda _: None)
    monkeypatch.setattr(torch.cuda, "Stream", stream)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: next(asked) * request.param)


@pytest.mark.usefixtures("streams")
def test_no_two_lanes_have_a_stream_and_the_usual_priority_comes_first() -> None:
    made = [lanes._make_lane(DEVICE).stream.cuda_stream for _ in range(12)]
    assert len(set(made)) == 12
    assert sorted(made[:3]) == [1, 2, 3]
    assert min(made[3:]) > 10


@pytest.mark.usefixtures("streams")
def test_when_all_are_taken_it_says_what_to_do() -> None:
    for _ in range(12):
        lanes._make_lane(DEVICE)
    with pytest.raises(CaptureError, match="12 are held by open runners"):
        lanes._make_lane(DEVICE)
