"""The line that is named: the model's or the user's, the same on a GPU and on the simulation."""

import re
import statistics
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import PreTrainedModel

import contract
from contract import CaptureError
from inference.blame import blame, is_users, place_of, root_cause
from inference.families import find_family, tiny_model
from inference.simulation import RecordedGraph, _answer_as_capturing, record
from tests.inference.tiny_models import tiny

HERE = "inference/test_blame.py"
IDS = torch.tensor([[3, 1, 4, 1, 5]])
SAID = "CUDA error: operation not permitted when stream is capturing"
SAID = "CUDA error: operation not permitted when stream is capturing"
STDLIB = sysconfig.get_paths()["stdlib"]


def reads_a_value(operation: OpOverload[..., Any]) -> bool:
    return torch.Tag.data_dependent_output in operation.tags


def out_of_torch(function: Callable[..., object]) -> Callable[..., object]:
    """The function as if a file of torch held it, as it is torch that raises what CUDA says."""
    assert isinstance(function, FunctionType)
    function.__code__ = function.__code__.replace(co_filename=torch.__file__)
    return function


class AsACapture(TorchDispatchMode):
    """Raises where a CUDA capture raises, and as it does: a RuntimeError out of torch itself."""

    def __init__(self, refuses: Callable[[OpOverload[..., Any]], bool] = reads_a_value) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.refuses = refuses

    @out_of_torch
    def __torch_dispatch__(
        self,
        func: OpOverload[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        if self.refuses(func):
            raise RuntimeError(f"{SAID}\nCompile with `TORCH_USE_CUDA_DSA`")
        return func(*args, **(kwargs or {}))


def family(name: str) -> PreTrainedModel:
    return tiny_model(find_family(name))


class ReadsOnTheHost(nn.Module):
    def forward(self, hidden: Tensor) -> Tensor:
        return hidden if hidden.sum() > 0 else -hidden


class ReadsInTheStandardLibrary(nn.Module):
    def forward(self, hidden: Tensor) -> Tensor:
        return hidden * statistics.fmean(hidden.flatten())


def with_norm(norm: nn.Module) -> PreTrainedModel:
    """A model of transformers whose last norm is the user's own module."""
    model = tiny("llama")
    model.model.norm = norm.eval()
    return model


LONG_ROPE = 'transformers/modeling_rope_utils.py:N "if seq_len > original_max_position_embeddings:"'
EXPERTS = (
    "mixtral/modeling_mixtral.py:N "
    '"expert_mask = torch.nn.functional.one_hot(top_k_index, num_classes=self.num_experts)"'
)
BRANCH = f'{HERE}:N "return hidden if hidden.sum() > 0 else -hidden"'
MEAN = f'{HERE}:N "return hidden * statistics.fmean(hidden.flatten())"'


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (lambda: family("Phi-3 LongRoPE"), LONG_ROPE),
        (lambda: family("Mixtral, looped experts"), EXPERTS),
        (lambda: with_norm(ReadsOnTheHost()), BRANCH),
        (lambda: with_norm(ReadsInTheStandardLibrary()), MEAN),
    ],
    ids=["transformers' rope", "transformers' experts", "user's module", "through the standard library"],
)
@torch.no_grad()
def test_a_broken_capture_and_the_simulation_name_the_same_line(
    make: Callable[[], PreTrainedModel], place: str
) -> None:
    model = make()
    with pytest.raises(RuntimeError, match="not permitted") as broken, _answer_as_capturing(), AsACapture():
        model(input_ids=IDS, use_cache=False)
    with pytest.raises(CaptureError) as refused, record(RecordedGraph()):
        model(input_ids=IDS, use_cache=False)
    named = blame(broken.value).removesuffix(f" ({SAID})")
    assert re.sub(r"(?<=\.py:)\d+", "N", named) == place
    assert f" at {named}: " in str(refused.value)


@torch.no_grad()
def test_experts_that_are_hit_are_named_as_a_gpu_names_them() -> None:
    """On CUDA `one_hot` reads nothing: the first line refused is the one that looks for experts."""
    model = family("Mixtral, looped experts")
    with (
        pytest.raises(RuntimeError) as broken,
        AsACapture(lambda operation: operation is torch.ops.aten.nonzero.default),
    ):
        model(input_ids=IDS, use_cache=False)
    assert re.match(r'mixtral/modeling_mixtral\.py:\d+ "expert_hit = .*nonzero\(\)" \(', blame(broken.value))


@torch.no_grad()
def test_an_error_below_torchs_own_modules_is_the_callers_line() -> None:
    model = tiny("llama")
    model.model.layers[0].mlp.up_proj.weight = nn.Parameter(torch.zeros(3, 3))
    with pytest.raises(RuntimeError) as broken:
        model(input_ids=IDS, use_cache=False)
    named = blame(broken.value)
    assert re.match(r'llama/modeling_llama\.py:\d+ "down_proj = .*self\.up_proj\(x\)', named)
    assert "\n" not in named
    assert "shapes cannot be multiplied" in named


def raise_twice(first: BaseException) -> None:
    try:
        raise first
    finally:
        raise RuntimeError("capture invalidated")


def test_the_error_that_came_first_is_blamed() -> None:
    first = OSError()
    with pytest.raises(RuntimeError) as second:
        raise_twice(first)
    assert root_cause(second.value) is first
    assert re.fullmatch(rf'{HERE}:\d+ "raise first" \(OSError\)', blame(second.value))


def test_an_error_from_nowhere_is_told_as_such() -> None:
    assert blame(ValueError("why")) == "an unknown line (why)"


@pytest.mark.parametrize(
    ("path", "users"),
    [
        (__file__, True),
        ("/home/somebody/model.py", True),
        ("model.py", True),
        (sys.modules[PreTrainedModel.__module__].__file__, True),
        (f"{STDLIB}/site-packages/a_model/model.py", True),
        (f"{STDLIB}/dist-packages/a_model/model.py", True),
        ("<stdin>", True),
        ("<ipython-input-1-0123456789ab>", True),
        ("<string>", False),
        ("<frozen importlib._bootstrap>", False),
        ("<eval_with_key>.1", False),
        ("numpy/random/mtrand.pyx", False),
        (torch.__file__, False),
        (nn.Linear.forward.__code__.co_filename, False),
        (statistics.__file__, False),
        (blame.__code__.co_filename, False),
        (contract.__file__, True),
    ],
)
def test_whose_code_a_file_holds(path: str, users: bool) -> None:
    assert is_users(path) is users


def test_a_standard_library_below_a_folder_named_like_packages_is_still_pythons(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("inference.blame._STDLIB", Path("/opt/my-packages/lib/python3"))
    assert not is_users("/opt/my-packages/lib/python3/json/decoder.py")
    assert is_users("/opt/my-packages/lib/python3/site-packages/a_model.py")


def test_a_place_without_source_has_no_quotes() -> None:
    assert place_of("/nowhere/at/all.py", 7) == "at/all.py:7"
