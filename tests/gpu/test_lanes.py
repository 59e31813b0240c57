"""What a graph keeps the address of stays its own, whatever else runs in the process: `make gpu-test`."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from transformers import GPT2Config, GPT2LMHeadModel

from inference import lanes
from inference.backends import CudaBackend
from inference.forward import GraphedForward
from inference.generator import GraphedGenerator
from inference.sampling import Sampling

pytestmark = pytest.mark.gpu

DEVICE = torch.device("cuda", 0)
STALE_BYTES = 2**30


@pytest.fixture(scope="module")
def model() -> GPT2LMHeadModel:
    """Wide enough for products that cuBLAS splits, whose parts go through its buffer."""
    torch.manual_seed(0)
    config = GPT2Config(n_layer=2, n_positions=256, bos_token_id=None, eos_token_id=None)
    made: GPT2LMHeadModel = GPT2LMHeadModel(config).eval()
    nn.Module.to(made, DEVICE, torch.bfloat16)
    return made


@pytest.fixture
def generator(model: GPT2LMHeadModel) -> Iterator[GraphedGenerator]:
    with GraphedGenerator(model, max_length=128, buckets=(64,), strict=True) as made:
        yield made


def test_a_graph_survives_that_torch_gives_all_cublas_buffers_back(generator: GraphedGenerator) -> None:
    ids = torch.randint(1000, (1, 20))
    wanted = generator.generate(ids, 40)
    torch._C._cuda_clearCublasWorkspaces()
    gc.collect()
    torch.cuda.empty_cache()
    stale = [torch.full((STALE_BYTES // 64,), 7, dtype=torch.uint8, device=DEVICE) for _ in range(64)]
    for _ in range(3):
        assert torch.equal(generator.generate(ids, 40), wanted)
    torch.cuda.synchronize()
    assert all(bool((part == 7).all()) for part in stale)


def test_compiling_in_the_same_process_changes_no_answer(
    model: GPT2LMHeadModel, generator: GraphedGenerator
) -> None:
    ids = torch.randint(1000, (1, 20))
    wanted = generator.generate(ids, 40)
    compiled = torch.compile(model, mode="reduce-overhead", dynamic=False)
    with torch.no_grad():
        for _ in range(4):
            torch.compiler.cudagraph_mark_step_begin()
            compiled(input_ids=ids.to(DEVICE), use_cache=False)
            assert torch.equal(generator.generate(ids, 40), wanted)
    torch.compiler.reset()


def test_two_runners_never_share_a_lane_and_later_ones_take_those_that_are_free() -> None:
    def capture(pool: lanes.Pool) -> None:
        square = torch.ones((64, 64), device=DEVICE)
        CudaBackend(DEVICE).capture(lambda: square @ square, pool).graph.reset()

    pools = [lanes.new_pool(DEVICE) for _ in range(3)]
    assert len({pool.lane.stream.cuda_stream for pool in pools}) == 3
    for pool in pools:
        capture(pool)
    lane = pools[0].lane
    before_bytes = torch.cuda.memory_allocated(DEVICE)
    del pools[0], pool
    gc.collect()
    again = lanes.new_pool(DEVICE)
    assert again.lane is lane
    capture(again)
    assert torch.cuda.memory_allocated(DEVICE) == before_bytes


def test_a_lane_is_not_used_again_after_a_capture_that_broke() -> None:
    pool = lanes.new_pool(DEVICE)
    ones, lane = torch.ones(1, device=DEVICE), pool.lane
    with pytest.raises(Exception, match="capture failed"):
        CudaBackend(DEVICE).capture(lambda: ones * ones.item(), pool)
    del pool
    gc.collect()
    assert lanes.new_pool(DEVICE).lane is not lane


def test_there_are_lanes_for_more_runners_than_torch_has_streams_of_a_priority() -> None:
    pools = [lanes.new_pool(DEVICE) for _ in range(40)]
    assert len({pool.lane.stream.cuda_stream for pool in pools}) == 40
    ones = torch.ones((64, 64), device=DEVICE)
    capture = CudaBackend(DEVICE).capture(lambda: ones @ ones, pools[-1])
    capture.graph.replay()
    assert torch.equal(capture.output, ones @ ones)


def test_nothing_runs_on_another_stream_than_the_callers(model: GPT2LMHeadModel, tmp_path: Path) -> None:
    """A few kernels elsewhere make all graphs of an H200 process slower (docs/prediction.md)."""
    ids = torch.randint(1000, (1, 20))
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        with GraphedForward(model, lengths=(32, 64)) as forward:
            forward(ids)
        with GraphedGenerator(model, max_length=128, buckets=(64,), strict=True) as generator:
            generator.generate(ids, 5, sampling=Sampling(temperature=0.7, seed=1))
        pool = lanes.new_pool(DEVICE)
        ones = torch.ones((64, 64), device=DEVICE)
        CudaBackend(DEVICE).capture(lambda: ones @ ones, pool)
        torch.cuda.synchronize()
    recorded.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    launched = [e["args"] for e in events if e.get("cat") == "kernel" and not e["args"].get("graph node id")]
    assert len(launched) > 100
    assert len({args["stream"] for args in launched}) == 1
