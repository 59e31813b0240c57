"""What a recorded graph refuses, naming the operation and the line of user code."""

import copy
import inspect
import re
import statistics
import sysconfig
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

from contract import CaptureError
from inference.simulation import RecordedGraph, record

HERE = "inference/test_simulation_refusals.py"


def x() -> Tensor:
    return torch.arange(12.0).reshape(3, 4)


def location(function: Callable[..., object]) -> str:
    """`folder/file.py:LINE "source"` of the first line of a function's body."""
    lines, first = inspect.getsourcelines(function)
    return f'{HERE}:{first + 1} "{lines[1].strip()}"'


def one_line(operation: str, function: Callable[..., object]) -> str:
    """Pattern of a whole refusal: operation, place, reason, remedy."""
    return rf"^{re.escape(operation)} at {re.escape(location(function))}: [^\n;]+; [^\n]+\Z"


def read_item(x: Tensor) -> object:
    return x.sum().item()


def read_bool(x: Tensor) -> object:
    return 1 if x.any() else 0


def read_int(x: Tensor) -> object:
    return int(x[0, 0])


def read_float_in_the_standard_library(x: Tensor) -> object:
    return statistics.fmean(x[0])


def read_length(x: Tensor) -> object:
    return x[: x.argmax()]


def read_by_comparison(x: Tensor) -> object:
    return torch.equal(x, x + 1)


def read_allclose(x: Tensor) -> object:
    return torch.allclose(x, x + 1)


def read_to_list(x: Tensor) -> object:
    return x.tolist()


def read_numpy(x: Tensor) -> object:
    return x.numpy()


def read_array(x: Tensor) -> object:
    return np.asarray(x)


def read_cpu(x: Tensor) -> object:
    return x.cpu()


def read_text(x: Tensor) -> object:
    return str(x)


def read_formatted(x: Tensor) -> object:
    return f"{x}"


def shape_nonzero(x: Tensor) -> object:
    return x.nonzero()


def shape_where(x: Tensor) -> object:
    return torch.where(x > 3)


def shape_boolean_index(x: Tensor) -> object:
    return x[x > 3]


def shape_masked_select(x: Tensor) -> object:
    return x.masked_select(x > 3)


def shape_unique(x: Tensor) -> object:
    return torch.unique(x)


def shape_boolean_assignment(x: Tensor) -> None:
    x[x > 5] = torch.arange(6.0)


def shape_byte_index(x: Tensor) -> object:
    return x[(x > 3).byte()]


def shape_mask_beside_an_index(x: Tensor) -> None:
    x[x[:, 0] > 1, torch.zeros(1, dtype=torch.long)] = 0.0


def shape_accumulated_mask(x: Tensor) -> object:
    return x.index_put_((x > 5,), torch.ones(()), accumulate=True)


def shape_repeat(x: Tensor) -> object:
    return x.repeat_interleave(torch.full((3,), 2), dim=0)


def literal_list(x: Tensor) -> object:
    return x + torch.tensor([1.0, 2.0, 3.0, 4.0])


def literal_on_a_device(x: Tensor) -> object:
    return x + torch.tensor(1.0, device=x.device)


def literal_like(x: Tensor) -> object:
    return x + x.new_tensor(1.0)


def literal_index(x: Tensor) -> object:
    return x[[0, 2]]


def literal_from_numpy(x: Tensor) -> object:
    return x + torch.from_numpy(np.ones(4, dtype=np.float32))


def grown(x: Tensor) -> object:
    return (x + 1).resize_(1000)


def deep_copied(x: Tensor) -> object:
    return copy.deepcopy(x)


def sparse_result(x: Tensor) -> object:
    return x.to_sparse()


REFUSED: dict[Callable[[Tensor], object], str] = {
    read_item: "aten._local_scalar_dense",
    read_bool: "aten._local_scalar_dense",
    read_int: "aten._local_scalar_dense",
    read_float_in_the_standard_library: "aten._local_scalar_dense",
    read_length: "aten._local_scalar_dense",
    read_by_comparison: "aten.equal",
    read_allclose: "aten.allclose",
    read_to_list: "Tensor.tolist",
    read_numpy: "Tensor.numpy",
    read_array: "Tensor.__array__",
    read_cpu: "Tensor.cpu",
    read_text: "Tensor.__repr__",
    read_formatted: "Tensor.__format__",
    shape_nonzero: "aten.nonzero",
    shape_where: "aten.nonzero",
    shape_boolean_index: "aten.index",
    shape_masked_select: "aten.masked_select",
    shape_unique: "aten._unique2",
    shape_boolean_assignment: "aten.index_put_",
    shape_byte_index: "aten.index",
    shape_mask_beside_an_index: "aten.index_put_",
    shape_accumulated_mask: "aten.index_put_",
    shape_repeat: "aten.repeat_interleave",
    literal_list: "aten.lift_fresh",
    literal_on_a_device: "torch.tensor",
    literal_like: "Tensor.new_tensor",
    literal_index: "aten.lift_fresh",
    literal_from_numpy: "aten.lift_fresh",
    grown: "aten.resize_",
    deep_copied: "aten.set_",
    sparse_result: "aten._to_sparse",
}


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
@pytest.mark.parametrize("function", REFUSED, ids=lambda function: function.__name__)
@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_an_operation_that_a_graph_cannot_hold_is_refused_at_its_line(
    function: Callable[[Tensor], object], guard: Callable[[], AbstractContextManager[object]]
) -> None:
    static = x()
    function(static.clone())  # fine outside a capture
    operation = REFUSED[function]
    if guard is torch.inference_mode and operation == "aten._local_scalar_dense":
        operation = "aten.item"  # the same read, under the name that inference_mode shows
    with pytest.raises(CaptureError, match=one_line(operation, function)), guard(), record(RecordedGraph()):
        function(static)


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return -x if x.sum() > 0 else x


def test_the_line_is_the_models_not_the_callers() -> None:
    model = nn.Sequential(nn.Identity(), Branching())
    pattern = one_line("aten._local_scalar_dense", Branching.forward)
    with pytest.raises(CaptureError, match=pattern), torch.no_grad(), record(RecordedGraph()):
        model(x())


def test_a_line_of_an_installed_model_counts_even_below_the_standard_library() -> None:
    code = compile(
        "\nx.tolist()", f"{sysconfig.get_paths()['stdlib']}/site-packages/a_model/model.py", "exec"
    )
    with (
        pytest.raises(CaptureError, match=r"^Tensor\.tolist at a_model/model\.py:2: "),
        record(RecordedGraph()),
    ):
        exec(code, {"x": x()})


def test_code_without_a_file_still_gets_a_named_refusal() -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with record(RecordedGraph()):
                x().tolist()
        except CaptureError as error:
            errors.append(error)

    # As under `python -c`: no frame of the thread belongs to a file of the user.
    nameless = types.FunctionType(
        run.__code__.replace(co_filename="<string>"), globals(), closure=run.__closure__
    )
    thread = threading.Thread(target=nameless)
    thread.start()
    thread.join()
    assert re.match(r"Tensor\.tolist at \S+:\d+", str(errors[0]))


def test_a_raw_storage_is_refused() -> None:
    storage = x().untyped_storage()
    with pytest.raises(CaptureError, match=r"^aten\.set_ at .* raw storage"), record(RecordedGraph()):
        torch.empty(0).set_(storage)


def test_a_swallowed_refusal_still_breaks_the_capture() -> None:
    def forward() -> Tensor:
        with suppress(CaptureError):
            read_to_list(x())
        return x() + 1

    with pytest.raises(CaptureError, match=one_line("Tensor.tolist", read_to_list)), record(RecordedGraph()):
        forward()


def test_a_refusal_that_user_code_turns_into_another_error_is_the_one_raised() -> None:
    def forward() -> None:
        try:
            read_item(x())
        except CaptureError as error:
            raise ValueError("bad input") from error

    pattern = one_line("aten._local_scalar_dense", read_item)
    with pytest.raises(CaptureError, match=pattern), torch.no_grad(), record(RecordedGraph()):
        forward()


def test_an_interrupt_after_a_refusal_is_an_interrupt() -> None:
    def forward() -> None:
        with suppress(CaptureError):
            read_item(x())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), record(RecordedGraph()):
        forward()


@pytest.mark.parametrize("error", [ValueError("of the model"), KeyboardInterrupt()])
def test_an_error_of_the_block_passes_and_leaves_nothing_patched(error: BaseException) -> None:
    def forward() -> None:
        x().add_(1)
        raise error

    question = torch.cuda.is_current_stream_capturing
    with pytest.raises(type(error)) as raised, record(RecordedGraph()):
        forward()
    assert raised.value is error
    assert torch.cuda.is_current_stream_capturing is torch.cuda.graphs.is_current_stream_capturing is question
    assert _get_current_dispatch_mode() is None
    assert x()[0].tolist() == [0, 1, 2, 3]  # no function is refused any more
    with record(RecordedGraph()):  # nor is the next capture
        x()


def test_a_failed_graph_is_unusable_until_reset() -> None:
    graph, static = RecordedGraph(), torch.ones(2)
    with pytest.raises(CaptureError), record(graph):
        read_numpy(static + 1)
    why = (
        r"^replay: the capture of this graph failed \(Tensor\.numpy at .*\); reset\(\) it and capture again\Z"
    )
    with pytest.raises(CaptureError, match=why):
        graph.replay()
    assert (graph.nodes, graph.pool_bytes) == ((), 0)
    with pytest.raises(CaptureError, match=r"^record: .* reset\(\)"), record(graph):
        raise AssertionError("must not be entered")
    graph.reset()
    with record(graph):
        result = static + 1
    static.fill_(2)
    graph.replay()
    assert result.tolist() == [3, 3]


# Replays: an address or a shape that is no longer the recording's.


def apply_layer(layer: nn.Linear, static: Tensor) -> Tensor:
    return nn.functional.relu(nn.functional.linear(static, layer.weight) + 1)


@dataclass(frozen=True)
class Run:
    """A recorded `apply_layer` and what it worked on."""

    graph: RecordedGraph
    layer: nn.Linear
    static: Tensor
    output: Tensor


@pytest.fixture
def run() -> Run:
    layer, static, graph = nn.Linear(4, 5, bias=False), torch.rand(3, 4), RecordedGraph()
    with torch.no_grad(), record(graph):
        output = apply_layer(layer, static)
    return Run(graph, layer, static, output)


def rebind_parameter(run: Run) -> None:
    run.layer.weight.data = run.layer.weight.data.clone()


def rebind_input(run: Run) -> None:
    run.static.data = run.static.data + 1


def set_input(run: Run) -> None:
    run.static.set_(torch.ones(12).untyped_storage(), 0, (3, 4), (4, 1))


def grow_input(run: Run) -> None:
    run.static.resize_(300, 400)


def free_input(run: Run) -> None:
    run.static.untyped_storage().resize_(0)


def shrink_input(run: Run) -> None:
    run.static.resize_(2, 4)


def turn_input(run: Run) -> None:
    run.static.t_()


def grow_output(run: Run) -> None:
    run.output.resize_(300, 500)


@pytest.mark.parametrize(
    ("change", "what", "operation"),
    [
        (rebind_parameter, "address", r"aten\.t"),
        (rebind_input, "address", r"aten\.mm"),
        (set_input, "address", r"aten\.mm"),
        (grow_input, "address", r"aten\.mm"),
        (free_input, "address", r"aten\.mm"),
        (shrink_input, "shape", r"aten\.mm"),
        (turn_input, "shape", r"aten\.mm"),
        (grow_output, "address", r"aten\.relu"),
    ],
)
def test_a_tensor_that_changed_is_refused_at_the_replay(
    run: Run, change: Callable[[Run], None], what: str, operation: str
) -> None:
    run.graph.replay()
    with torch.no_grad():
        change(run)
    pattern = rf"^{operation} at {re.escape(location(apply_layer))}: .* whose {what} changed .*; .*copy_\(\)"
    with pytest.raises(CaptureError, match=pattern):
        run.graph.replay()


def test_a_refused_replay_has_run_nothing() -> None:
    counter, static, graph = torch.zeros(1), torch.rand(2), RecordedGraph()
    with torch.no_grad(), record(graph):
        counter.add_(1)
        static.mul(2)
    static.data = torch.rand(2)
    with pytest.raises(CaptureError):
        graph.replay()
    assert counter.tolist() == [1]


def test_a_tensor_rebound_during_the_capture_is_refused_at_its_end() -> None:
    def forward(static: Tensor) -> Tensor:
        before = static * 2
        static.data = torch.ones(2)
        return before + static

    graph, static = RecordedGraph(), torch.rand(2)
    pattern = rf"^aten\.mul at {re.escape(location(forward))}: .* whose address changed"
    with pytest.raises(CaptureError, match=pattern), torch.no_grad(), record(graph):
        forward(static)
    with pytest.raises(CaptureError, match="failed"):
        graph.replay()


@pytest.fixture
def unsteady() -> Iterator[Callable[[Tensor], list[Tensor]]]:
    """An operation without tags whose results follow the values: how many, how large, of which type."""

    def kernel(x: Tensor) -> list[Tensor]:
        count, size, is_long = (int(value) for value in x)
        return [torch.ones(size, dtype=torch.long if is_long else torch.float) for _ in range(count)]

    def lay_out(x: Tensor) -> Tensor:
        return (x + 0)[:1].expand(3) if x[0] == 2 else x.clone()

    with torch.library._scoped_library("launchgap_unsteady", "FRAGMENT") as library:
        library.define("lay_out(Tensor x) -> Tensor")
        library.impl("lay_out", lay_out, "CPU")
        library.define("ones(Tensor x) -> Tensor[]")
        library.impl("ones", kernel, "CPU")
        yield torch.ops.launchgap_unsteady.ones


def call_unsteady(operation: Callable[[Tensor], list[Tensor]], static: Tensor) -> list[Tensor]:
    return operation(static)


@pytest.mark.parametrize(
    ("values", "now"),
    [
        ((2, 4, 0), r"gives torch.float32 \[4\] where the capture gave torch.float32 \[3\]"),
        ((2, 3, 1), r"gives torch.int64 \[3\] where the capture gave torch.float32 \[3\]"),
        ((1, 3, 0), r"gives nothing where the capture gave torch.float32 \[3\]"),
    ],
)
def test_a_result_that_changed_is_refused_at_the_replay(
    unsteady: Callable[[Tensor], list[Tensor]], values: tuple[int, int, int], now: str
) -> None:
    static, graph = torch.zeros(3), RecordedGraph()
    static[0], static[1] = 2, 3
    with torch.no_grad(), record(graph):
        results = call_unsteady(unsteady, static)
    graph.replay()
    assert [result.tolist() for result in results] == [[1, 1, 1], [1, 1, 1]]
    static.copy_(torch.tensor(values))
    where = re.escape(location(call_unsteady))
    with pytest.raises(CaptureError, match=rf"^launchgap_unsteady\.ones at {where}: {now}, .*; .*"):
        graph.replay()


@pytest.mark.usefixtures("unsteady")
def test_a_layout_that_changed_is_refused_at_the_replay() -> None:
    static, graph = torch.full((3,), 2.0), RecordedGraph()
    with torch.no_grad(), record(graph):
        torch.ops.launchgap_unsteady.lay_out(static)
    static[0] = 1
    with pytest.raises(CaptureError, match=r"\[3\] where .* \[3\] with strides \(0,\), but"):
        graph.replay()
