"""Every strategy of the forward benchmark on a real GPU, torch.compile included: run with `make gpu-test`."""

from pathlib import Path

import pytest

from contract import WITHOUT_GRAPH, Strategy, StrategyFields
from inference.benchmark import BenchmarkSettings
from inference.case import CaseOptions, open_case
from inference.latency import measure_case
from tests.inference.tiny_models import tiny

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]

RUNS = 5
COMPILED = {Strategy.GRAPH_FUSED, Strategy.COMPILED_DEFAULT, Strategy.COMPILED}
ALL_LOGITS = {Strategy.EAGER, Strategy.GRAPH, Strategy.GRAPH_PADDED, Strategy.EAGER_UNMASKED}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_every_strategy_answers_as_eager_does(family: str, dtype: str, tmp_path: Path) -> None:
    tiny(family).save_pretrained(tmp_path)
    case = open_case(
        CaseOptions(model=str(tmp_path), device="cuda", dtype=dtype, prompt_length=8, max_length=32)
    )
    # Half precision is judged by the largest error of either side, which few prompts would leave to chance.
    settings = BenchmarkSettings(list(Strategy), runs=RUNS, warmup_s=0.0, correctness_inputs=20)
    record = measure_case(case, settings, ["test"])
    strategies = record["strategies"]
    assert {name: fields["error"] for name, fields in strategies.items() if fields["error"]} == {}
    for name, fields in strategies.items():
        assert len(fields["event_ms"]) == len(fields["wall_ms"]) == RUNS
        _check(Strategy(name), fields)
    floor = record["floor"]
    assert floor["bandwidth_bytes_per_s"] is not None
    assert floor["floor_ms"] is not None
    assert floor["floor_ms"] > 0


def _check(name: Strategy, fields: StrategyFields) -> None:
    correctness = fields["correctness"]
    assert (correctness is None) == (name is Strategy.EAGER)
    assert correctness is None or correctness["verdict"] != "DIFFERENT", (name, correctness)
    assert fields["logits"] == ("all" if name in ALL_LOGITS else "last")
    assert (fields["compile_s"] is not None) == (name in COMPILED)
    captures = name not in WITHOUT_GRAPH and name is not Strategy.COMPILED
    assert (fields["capture_s"] is not None) == captures


def test_unmasked_eager_runs_the_kernels_of_eager(tmp_path: Path) -> None:
    tiny("llama").save_pretrained(tmp_path)
    case = open_case(CaseOptions(model=str(tmp_path), device="cuda", prompt_length=8, max_length=32))
    record = measure_case(case, BenchmarkSettings([Strategy.EAGER_UNMASKED], runs=1, warmup_s=0.0), ["test"])
    correctness = record["strategies"]["eager_unmasked"]["correctness"]
    assert correctness is not None
    assert correctness["bitwise"]
