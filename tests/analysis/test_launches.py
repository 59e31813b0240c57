import pandas as pd
import pytest

from analysis.launches import api_name, launch_calls, launch_kind


@pytest.mark.parametrize(
    ("recorded", "name", "kind"),
    [
        ("cudaLaunchKernel_v7000", "cudaLaunchKernel", "kernel"),
        ("cudaLaunchKernel_ptsz_v7000", "cudaLaunchKernel", "kernel"),
        ("cudaLaunchKernelExC_v11060", "cudaLaunchKernelExC", "kernel"),
        ("cudaLaunchCooperativeKernel_v9000", "cudaLaunchCooperativeKernel", "kernel"),
        ("cuLaunchKernel", "cuLaunchKernel", "kernel"),
        ("cuLaunchKernelEx", "cuLaunchKernelEx", "kernel"),
        ("cuLaunchCooperativeKernel_ptsz", "cuLaunchCooperativeKernel", "kernel"),
        ("cudaMemcpyAsync_v3020", "cudaMemcpyAsync", "memcpy"),
        ("cudaMemcpy2DAsync_v3020", "cudaMemcpy2DAsync", "memcpy"),
        ("cudaMemcpy_v3020", "cudaMemcpy", "memcpy"),
        ("cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync", "memcpy"),
        ("cuMemcpyDtoHAsync_v2_ptsz", "cuMemcpyDtoHAsync", "memcpy"),
        ("cudaMemsetAsync_v3020", "cudaMemsetAsync", "memset"),
        ("cuMemsetD32Async", "cuMemsetD32Async", "memset"),
        ("cuMemsetD8_v2_ptds", "cuMemsetD8", "memset"),
        ("cudaGraphLaunch_v10000", "cudaGraphLaunch", "graph"),
        ("cuGraphLaunch_ptsz", "cuGraphLaunch", "graph"),
        ("cudaLaunchHostFunc_v10000", "cudaLaunchHostFunc", None),
        ("cuLaunchHostFunc", "cuLaunchHostFunc", None),
        ("cudaStreamSynchronize_v3020", "cudaStreamSynchronize", None),
        ("cudaGraphInstantiate_v12000", "cudaGraphInstantiate", None),
        ("cudaGraphAddMemcpyNode_v10000", "cudaGraphAddMemcpyNode", None),
        ("cudaMallocAsync_v11020", "cudaMallocAsync", None),
        ("cuKernelGetName", "cuKernelGetName", None),
        ("mycudaLaunchKernel", "mycudaLaunchKernel", None),
        ("_v7000", "_v7000", None),
        ("", "", None),
    ],
)
def test_name_and_kind(recorded: str, name: str, kind: str | None) -> None:
    assert api_name(recorded) == name
    assert launch_kind(recorded) == kind


def test_launch_calls_keep_their_place() -> None:
    names = ["cudaStreamIsCapturing_v10000", "cudaLaunchKernel_v7000", "cudaGraphLaunch_v10000"]
    calls = pd.DataFrame({"name": pd.Categorical(names), "start_ns": [0, 5, 9]})
    found = launch_calls(calls)
    assert found.index.tolist() == [1, 2]
    assert found["api"].tolist() == ["cudaLaunchKernel", "cudaGraphLaunch"]
    assert found["kind"].tolist() == ["kernel", "graph"]
    assert launch_calls(calls.iloc[:0]).empty
