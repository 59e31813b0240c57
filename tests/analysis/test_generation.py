"""Numbers of a record made up so that each can be worked out by hand."""

from __future__ import annotations

from typing import Literal

import pytest

from analysis.generation import generation_table, pay_back, summarise_generation, time_saved
from contract import (
    CaseFields,
    GenerationFields,
    GenerationRecord,
    ModelFields,
    TokenAgreementFields,
)

IDENTICAL = TokenAgreementFields(identical=True, first_divergence=None, logits=None, reference_logits=None)


def fields(
    total_ms: float,
    token_ms: float,
    agreement: TokenAgreementFields | None = IDENTICAL,
    *,
    capture_s: float | None = None,
    compile_s: float | None = None,
    interleaved: bool = True,
) -> GenerationFields:
    """Three requests of 100 tokens around a median, and of 50 tokens."""
    whole = [total_ms - 1, total_ms, total_ms + 1]
    return GenerationFields(
        status="ok",
        reason=None,
        notes=[],
        interleaved=interleaved,
        first_request_s=3.0,
        capture_s=capture_s,
        compile_s=compile_s,
        wall_ms=whole,
        half_wall_ms=[ms - 50 * token_ms for ms in whole],
        agreement=agreement,
    )


def absent(status: Literal["failed", "unavailable"], reason: str) -> GenerationFields:
    return GenerationFields(
        status=status,
        reason=reason,
        notes=[],
        interleaved=False,
        first_request_s=None,
        capture_s=None,
        compile_s=None,
        wall_ms=[],
        half_wall_ms=[],
        agreement=None,
    )


def record(*, simulated: bool = False, new_tokens: int = 100) -> GenerationRecord:
    return GenerationRecord(
        schema_version=1,
        kind="generation",
        case=CaseFields(
            name="gpt2-float32-p50-m256",
            model="gpt2",
            dtype="float32",
            prompt_length=50,
            max_length=256,
            attn_implementation="sdpa",
        ),
        device="cpu" if simulated else "cuda",
        simulated=simulated,
        settings={"new_tokens": new_tokens, "half_tokens": new_tokens // 2, "runs": 3, "seed": 0},
        model=ModelFields(
            architecture="GPT2LMHeadModel",
            source="gpt2",
            weights="random",
            reason="the hub is switched off by HF_HUB_OFFLINE",
            parameters=1,
            weight_bytes=4,
            vocab_size=9,
            max_positions=1024,
        ),
        strategies={
            "generate": fields(400, 4.0, None),
            "graph": fields(200, 2.0, capture_s=1.0),
            "graph_fused": fields(150, 1.5, capture_s=2.0, compile_s=40.0),
        },
        weight_bytes_read=2_000_000_000,
        read_bandwidth_bytes_per_s=4e12,
        floor_ms_per_token=0.5,
        environment={
            "gpu": "H200",
            "driver": "570",
            "cuda": "13.0",
            "cpu": "EPYC",
            "torch": "2.13",
            "transformers": "5.17",
        },
        command=["generation_benchmark.py"],
    )


def line_of(table: str, name: str) -> str:
    return next(line for line in table.splitlines() if line.startswith(f"{name} "))


def test_rate_and_cost_of_a_token() -> None:
    found = summarise_generation(record(), "graph")
    assert found is not None
    assert found.median_ms == 200
    assert found.tokens_per_s == pytest.approx(500)
    assert found.ms_per_token == pytest.approx(2.0)
    assert found.floor_ratio == pytest.approx(4.0)


def test_a_round_that_was_slow_as_a_whole_does_not_change_the_cost_of_a_token() -> None:
    drifting = record()
    graph = drifting["strategies"]["graph"]
    graph["wall_ms"] = [200.0, 300.0, 400.0]
    graph["half_wall_ms"] = [100.0, 200.0, 300.0]
    found = summarise_generation(drifting, "graph")
    assert found is not None
    assert found.ms_per_token == pytest.approx(2.0)


def test_one_token_has_a_rate_and_no_difference() -> None:
    single = record(new_tokens=1)
    single["strategies"]["graph"]["half_wall_ms"] = []
    found = summarise_generation(single, "graph")
    assert found is not None
    assert found.ms_per_token is None
    assert found.floor_ratio is None
    assert "over the difference" not in generation_table(single)


def test_without_a_floor_there_is_no_ratio() -> None:
    mixture = record()
    mixture["weight_bytes_read"] = mixture["floor_ms_per_token"] = None
    found = summarise_generation(mixture, "graph")
    assert found is not None
    assert found.floor_ratio is None
    assert "none for a mixture of experts" in generation_table(mixture)


def test_time_saved_is_of_pairs_alone() -> None:
    some = record()
    saved = time_saved(some, "graph")
    assert saved is not None
    assert saved.percent == pytest.approx(50.0)
    some["strategies"]["vllm"] = fields(100, 1.0, interleaved=False)
    assert time_saved(some, "vllm") is None
    assert time_saved(some, "generate") is None
    assert "vllm: measured after the others" in generation_table(some)


def test_compiling_pays_after_as_many_requests_as_it_takes() -> None:
    some = record()
    found = pay_back(some)
    assert found is not None
    assert found.extra_s == pytest.approx(41.0)
    assert found.gain_ms == pytest.approx(50.0)
    assert found.requests == 820
    assert "pays after 820 requests" in generation_table(some)
    some["strategies"]["graph_fused"]["compile_s"] = 40.001
    again = pay_back(some)
    assert again is not None
    assert again.requests == 821


def test_compiling_that_costs_nothing_more_pays_at_once() -> None:
    some = record()
    some["strategies"]["graph_fused"] |= {"capture_s": 0.5, "compile_s": 0.0}
    found = pay_back(some)
    assert found is not None
    assert found.requests == 1


def test_compiling_that_is_not_faster_never_pays() -> None:
    some = record()
    some["strategies"]["graph_fused"] = fields(210, 2.1, capture_s=2.0, compile_s=40.0)
    found = pay_back(some)
    assert found is not None
    assert found.requests is None
    assert "compiling never pays" in generation_table(some)


def test_nothing_is_said_of_paying_where_one_is_missing() -> None:
    some = record()
    some["strategies"]["graph"] = absent("failed", "graph: out of GPU memory")
    assert pay_back(some) is None
    assert "pays" not in generation_table(some)


def test_the_table_says_what_there_is_to_know() -> None:
    some = record()
    some["strategies"]["sglang"] = absent("unavailable", "sglang: not installed")
    some["strategies"]["graph_fused"]["notes"] = ["step 256 greedy is not fused: no compiler"]
    some["strategies"]["graph_fused"]["agreement"] = TokenAgreementFields(
        identical=False, first_divergence=17, logits=[1.25, 1.5], reference_logits=[1.5, 1.25]
    )
    table = generation_table(some)
    assert "unavailable" in line_of(table, "sglang")
    assert "sglang: not installed" in table
    assert "graph_fused: step 256 greedy is not fused: no compiler" in table
    assert "differ from 17 on" in line_of(table, "graph_fused")
    assert "at token 17 the logits of its choice and generate's are 1.25 and 1.5" in table
    assert "identical" in line_of(table, "graph")
    assert "reference" in line_of(table, "generate")
    assert "2,000,000,000 bytes of weights, at the 4000 GB/s" in table
    assert "random weights: the hub is switched off" in table
    assert "Simulation" not in table


def test_a_simulation_is_not_judged() -> None:
    table = generation_table(record(simulated=True))
    assert "no speed-up is to be expected" in table
    assert "pays after" not in table
    assert " %" not in line_of(table, "graph")
