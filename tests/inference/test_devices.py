"""Devices and dtypes: what is refused, and that the refusal names the remedy."""

import pytest
import torch

from contract import LaunchgapError
from inference.devices import resolve_device, resolve_dtype

CPU = torch.device("cpu")


def test_auto_falls_back_to_the_cpu_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto").type == "cpu"


def test_cuda_without_a_gpu_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(LaunchgapError, match=r"--device cpu for the simulation") as caught:
        resolve_device("cuda")
    assert "\n" not in str(caught.value)


def test_an_unknown_device_is_named() -> None:
    with pytest.raises(LaunchgapError, match=r"'tpu'"):
        resolve_device("tpu")


@pytest.mark.parametrize(("name", "expected"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_dtypes_that_the_cpu_computes_in(name: str, expected: torch.dtype) -> None:
    assert resolve_dtype(name, CPU) is expected


def test_float16_is_refused_on_the_cpu() -> None:
    with pytest.raises(LaunchgapError, match=r"float16: not supported on the CPU"):
        resolve_dtype("float16", CPU)


def test_an_unknown_dtype_lists_the_known() -> None:
    with pytest.raises(LaunchgapError, match=r"'int4'.*float32"):
        resolve_dtype("int4", CPU)
