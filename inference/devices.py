"""Choose the device and refuse what it cannot do, before anything is loaded."""

from __future__ import annotations

import torch

from contract import Dtype, LaunchgapError

_TORCH_DTYPES = {
    Dtype.FLOAT32: torch.float32,
    Dtype.BFLOAT16: torch.bfloat16,
    Dtype.FLOAT16: torch.float16,
}


def resolve_device(wanted: str) -> torch.device:
    """`auto`, `cuda` or `cpu` as a torch device; `auto` falls back to the CPU simulation.

    Raises:
        LaunchgapError: CUDA was asked for and is not usable; names the cause and the remedy.
    """
    if wanted == "cpu":
        return torch.device("cpu")
    if wanted not in ("auto", "cuda"):
        raise LaunchgapError(f"device {wanted!r}: unknown; use auto, cuda or cpu")
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    if wanted == "auto":
        return torch.device("cpu")
    if torch.version.cuda is None:
        why = f"torch {torch.__version__} is a build without CUDA; install a CUDA build of torch"
    else:
        why = f"torch {torch.__version__} sees no GPU; check `nvidia-smi` and CUDA_VISIBLE_DEVICES"
    raise LaunchgapError(f"device cuda: {why}, or use --device cpu for the simulation")


def resolve_dtype(wanted: str, device: torch.device) -> torch.dtype:
    """A dtype by torch's name, if the device computes in it.

    Raises:
        LaunchgapError: unknown name, or a type that the device has no arithmetic for.
    """
    if wanted not in list(Dtype):
        raise LaunchgapError(f"dtype {wanted!r}: unknown; use {', '.join(Dtype)}")
    if wanted == Dtype.FLOAT16 and device.type == "cpu":
        raise LaunchgapError("dtype float16: not supported on the CPU; use float32 or bfloat16 there")
    if (
        wanted == Dtype.BFLOAT16
        and device.type == "cuda"
        and not torch.cuda.is_bf16_supported(including_emulation=False)
    ):
        raise LaunchgapError(
            f"dtype bfloat16: {torch.cuda.get_device_name(device)} has none; use float16 or float32"
        )
    return _TORCH_DTYPES[Dtype(wanted)]


def forbid_tf32() -> None:
    """Full fp32 arithmetic: TF32 would cost about 2e-3 in gpt2's logits and blur every comparison."""
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
