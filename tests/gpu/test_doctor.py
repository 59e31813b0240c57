"""The doctor on a real GPU, on the same models as on the simulation: run with `make gpu-test`."""

import pytest
import torch
from torch import nn

from inference.backends import CudaBackend
from inference.doctor import Diagnosis, Harm, diagnose
from inference.doctor_watch import WAITS, watch
from tests.inference.breaking_models import (
    BREAKERS,
    Innocent,
    Item,
    LegacyStream,
    marked_place,
    with_norm,
)
from tests.inference.tiny_models import VOCABULARY, tiny

pytestmark = pytest.mark.gpu

DEVICE = torch.device("cuda", 0)


def examined(model: nn.Module) -> Diagnosis:
    generator = torch.Generator().manual_seed(0)
    prompts = [torch.randint(VOCABULARY, (1, n), generator=generator) for n in (8, 8, 4)]
    return diagnose(model, prompts, CudaBackend(DEVICE))


def harmful(found: Diagnosis) -> list[tuple[str, str]]:
    return [(str(a.harm), a.place) for a in found.ailments if a.harm in (Harm.BREAKS, Harm.CORRUPTS)]


@pytest.mark.parametrize("name", BREAKERS)
def test_each_breaker_is_named_with_its_line(name: str) -> None:
    module, harm = BREAKERS[name]
    found = examined(with_norm(module(), "cuda"))
    assert (harm, marked_place(module)) in harmful(found)
    parts = {part.name: part.capturable for part in found.parts}
    assert parts["model.norm"] is False
    assert parts["model.layers.0"] is True
    assert parts["model.layers.1"] is True


@pytest.mark.parametrize("name", ["item", "nonzero", "host copy", "branch", "generator", "host data"])
def test_the_real_capture_breaks_on_the_very_line(name: str) -> None:
    module, _ = BREAKERS[name]
    found = examined(with_norm(module(), "cuda"))
    assert found.trial.refused is not None
    assert marked_place(module) in found.trial.refused


def test_work_on_the_legacy_stream_is_named_with_its_line() -> None:
    found = examined(with_norm(LegacyStream(), "cuda"))
    assert ("corrupts", marked_place(LegacyStream)) in harmful(found)


def test_the_process_is_well_after_a_broken_capture() -> None:
    assert not examined(with_norm(Item(), "cuda")).capturable
    assert examined(with_norm(Innocent(), "cuda")).capturable
    assert torch.cuda.get_sync_debug_mode() == 0


@pytest.mark.parametrize(
    ("family", "dtype"),
    [*((name, torch.float32) for name in ("gpt2", "bert", "opt", "llama")), ("mixtral", torch.bfloat16)],
)
def test_models_that_can_be_captured_are(family: str, dtype: torch.dtype) -> None:
    model = tiny(family)
    nn.Module.to(model, DEVICE, dtype)
    found = examined(model)
    assert found.capturable, found
    assert found.trial.difference is not None


def test_experts_in_fp32_are_named() -> None:
    """Their grouped product asks the host how many tokens each expert has; in bf16 it does not."""
    model = tiny("mixtral")
    nn.Module.to(model, DEVICE)
    found = examined(model)
    assert not found.capturable
    assert "aten._grouped_mm" in {one.operation for one in found.ailments if one.harm is Harm.BREAKS}


def test_sync_debug_mode_names_the_operation_and_the_line() -> None:
    hidden = torch.ones(3, device=DEVICE)
    ((stop, count),) = watch(lambda: hidden.sum().item(), DEVICE, as_capturing=True).stops.items()
    assert (stop.operation, stop.why, count) == ("aten._local_scalar_dense", WAITS, 1)
    assert stop.place.startswith("gpu/test_doctor.py:")
