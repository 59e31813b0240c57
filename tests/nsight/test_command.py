from __future__ import annotations

from pathlib import Path

import pytest

from contract import TraceMode
from nsight.command import allowed_environ, export_command, profile_command
from nsight.errors import NsysFailed
from nsight.install import Nsys

OLD = Nsys(Path("/usr/bin/nsys"), (2022, 4, 2), "2022.4.2.1-df9881f")
NEW = Nsys(Path("/opt/nsys"), (2025, 3, 1), "2025.3.1.90-25v0")


@pytest.mark.parametrize("mode", list(TraceMode))
def test_cuda_is_recorded_between_the_profiler_calls(mode: TraceMode) -> None:
    command = profile_command(NEW, Path("t.nsys-rep"), ["python", "x.py"], mode, trace_cuda=True)
    assert command[:4] == ["/opt/nsys", "profile", "--output", "t.nsys-rep"]
    assert command[-2:] == ["python", "x.py"]
    assert set(command[4:-2]) == {
        "--trace=cuda,nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        f"--cuda-graph-trace={mode}",
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop",
        "--kill=none",
    }


def test_without_cuda_everything_is_recorded() -> None:
    command = profile_command(OLD, Path("t.nsys-rep"), ["x"], TraceMode.NODE, trace_cuda=False)
    assert set(command[4:-1]) == {"--trace=nvtx", "--sample=none", "--cpuctxsw=none"}


@pytest.mark.parametrize("trace_cuda", [True, False])
def test_graph_mode_is_refused_where_it_cannot_be_exported(trace_cuda: bool) -> None:
    with pytest.raises(
        NsysFailed, match=r"2022\.4\.2\.1-df9881f: it cannot export .* graph mode; trace in node"
    ):
        profile_command(OLD, Path("t"), ["x"], TraceMode.GRAPH, trace_cuda)


def test_percent_is_no_placeholder() -> None:
    command = profile_command(NEW, Path("50% p/%h.nsys-rep"), ["x", "100%"], TraceMode.NODE, trace_cuda=False)
    assert command[3] == "50%% p/%%h.nsys-rep"
    assert command[-1] == "100%"


def test_export() -> None:
    assert export_command(NEW, Path("a b.nsys-rep"), Path("a b.sqlite")) == [
        "/opt/nsys",
        "export",
        "--type=sqlite",
        "--output=a b.sqlite",
        "a b.nsys-rep",
    ]


def test_secrets_stay_out_of_the_environment() -> None:
    kept = {
        "PATH": "/bin",
        "HOME": "/h",
        "CUDA_VISIBLE_DEVICES": "1",
        "NVIDIA_TF32_OVERRIDE": "0",
        "HF_HOME": "/m",
    }
    kept |= {"LD_LIBRARY_PATH": "/l", "PYTHONPATH": "/p", "VIRTUAL_ENV": "/v", "OMP_NUM_THREADS": "2"}
    secret = {
        "HF_TOKEN": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "HTTPS_PROXY": "http://me:x@proxy",
        "MY_PATH": "x",
    }
    secret |= {"SSH_AUTH_SOCK": "x", "CUDA": "x", "GITHUB_TOKEN": "x", "XPATH": "x", "PATHX": "x"}
    secret |= {"NVIDIA_API_KEY": "x", "TORCHINDUCTOR_REDIS_URL": "redis://me:x@cache", "TRITON_AUTH": "x"}
    assert allowed_environ(kept | secret) == kept
