"""What a recorded graph replays: storages, in-place operations, views, randomness, states."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
import torch
from torch import Tensor, nn

from contract import CaptureError
from inference.simulation import RecordedGraph, record

Guard = Callable[[], AbstractContextManager[object]]


def capture(function: Callable[[Tensor], Tensor], static: Tensor) -> tuple[RecordedGraph, Tensor]:
    graph = RecordedGraph()
    with torch.inference_mode(), record(graph):
        output = function(static)
    return graph, output


def assert_replays_like_eager(function: Callable[[Tensor], Tensor]) -> RecordedGraph:
    static = torch.rand(4, 6) + 1
    graph, output = capture(function, static)
    for _ in range(2):
        fresh = torch.rand(4, 6) + 1
        static.copy_(fresh)
        graph.replay()
        assert torch.equal(output, function(fresh.clone()))
    return graph


def in_place_chain(x: Tensor) -> Tensor:
    return (x + 1).mul_(2).sub_(x).relu_()


def views_of_views_written_in_place(x: Tensor) -> Tensor:
    base = x * 2
    base.view(2, 2, 6)[1].t()[1:4].add_(10)
    return base


def input_written_through_a_view(x: Tensor) -> Tensor:
    copy = x.clone()
    copy[:, ::2] = 7.0
    copy.flatten().narrow(0, 3, 5).mul_(x.flatten()[:5])
    return copy


def split_chunk_unbind(x: Tensor) -> Tensor:
    first, second = x.split([1, 3])
    left, right = (x + 1).chunk(2, dim=1)
    rows: Tensor = torch.stack(x.unbind()[::2])
    return torch.stack([first.sum(), second.sum(), (left * right).sum(), rows.prod()])


def several_fresh_results(x: Tensor) -> Tensor:
    values, indices = x.topk(3)
    mean, deviation = torch.std_mean(x, dim=1)
    return torch.cat([values, indices, mean[:, None], deviation[:, None]], dim=1)


def lists_of_fresh_results(x: Tensor) -> Tensor:
    one, other = torch._foreach_add([x * 1, x * 2], 1.0)
    torch._foreach_mul_([one, other], 3.0)  # changes its arguments and returns nothing
    return one - other


def result_given_as_out(x: Tensor) -> Tensor:
    total = torch.add(x, 1, out=torch.empty_like(x))
    return torch.mul(total, 2, out=torch.empty(0))


def metadata_changed_in_place(x: Tensor) -> Tensor:
    y = x + 1
    z = y * 2
    y.t_().unsqueeze_(0)
    return (y.squeeze(0).t() * z).squeeze_()


def allocation_filled_later(x: Tensor) -> Tensor:
    buffer = torch.empty_like(x)
    buffer[0] = x[1]
    buffer[1:].copy_(x[1:])
    return buffer.sum(0)


def mask_filled_with_a_number(x: Tensor) -> Tensor:
    y = x.clone()
    y[x > 1.5] = 0.0
    return y


def integer_indexing(x: Tensor) -> Tensor:
    return x[torch.arange(3), torch.arange(3)].sum() * x[x[0].argmax().view(1) % 4]


def scalar_literal_on_the_host(x: Tensor) -> Tensor:
    return torch.where(x > 1.5, torch.tensor(2.0), x)


def literal_without_elements(x: Tensor) -> Tensor:
    return torch.cat([x, torch.tensor([]).view(0, 6)])


def complex_numbers(x: Tensor) -> Tensor:
    return torch.view_as_complex(x.view(4, 3, 2)).conj().imag * 2


def repeated_to_a_fixed_size(x: Tensor) -> Tensor:
    return x.repeat_interleave(torch.full((4,), 2), dim=0, output_size=8)


def vectorised_map(x: Tensor) -> Tensor:
    mapped = torch.vmap(lambda row: row.cumsum(0) * row.max())(x)
    assert isinstance(mapped, Tensor)
    return mapped


@pytest.mark.parametrize(
    "function",
    [
        in_place_chain,
        views_of_views_written_in_place,
        input_written_through_a_view,
        split_chunk_unbind,
        several_fresh_results,
        lists_of_fresh_results,
        result_given_as_out,
        metadata_changed_in_place,
        allocation_filled_later,
        mask_filled_with_a_number,
        integer_indexing,
        scalar_literal_on_the_host,
        literal_without_elements,
        repeated_to_a_fixed_size,
        complex_numbers,
        vectorised_map,
    ],
)
def test_a_replay_equals_eager(function: Callable[[Tensor], Tensor]) -> None:
    assert_replays_like_eager(function)


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    with torch.library._scoped_library("launchgap_results", "FRAGMENT") as library:
        yield library


def test_a_fresh_result_may_repeat_its_elements(library: torch.library.Library) -> None:
    library.define("repeat(Tensor x) -> Tensor")
    library.impl("repeat", lambda x: x.sum(0).expand(4, -1), "CPU")
    graph = assert_replays_like_eager(torch.ops.launchgap_results.repeat)
    assert graph.nodes == ("launchgap_results.repeat",)


def test_fresh_results_may_share_a_storage(library: torch.library.Library) -> None:
    library.define("halves(Tensor x) -> (Tensor, Tensor)")
    library.impl("halves", lambda x: (x + 1).chunk(2), "CPU")
    graph = assert_replays_like_eager(lambda x: torch.ops.launchgap_results.halves(x)[1])
    assert graph.pool_bytes == 4 * 6 * 4


def test_a_check_on_the_device_is_made_at_every_replay() -> None:
    static, graph = torch.ones(2), RecordedGraph()
    with record(graph):
        torch._assert_async(static.min() > 0, "not positive")
    graph.replay()
    static[1] = -1
    with pytest.raises(RuntimeError, match="not positive"):
        graph.replay()


def test_the_output_keeps_its_address() -> None:
    static = torch.rand(4, 6)
    graph, output = capture(lambda x: (x + 1) * 2, static)
    address = output.data_ptr()
    for _ in range(3):
        graph.replay()
        assert output.data_ptr() == address


def test_an_earlier_output_is_overwritten_unless_cloned() -> None:
    static = torch.zeros(3)
    graph, output = capture(lambda x: x + 1, static)
    kept_reference, kept_copy = output, output.clone()
    static.fill_(5)
    graph.replay()
    assert kept_reference.tolist() == [6, 6, 6]
    assert kept_copy.tolist() == [1, 1, 1]


def test_a_reshaped_handle_of_the_output_does_not_disturb_the_graph() -> None:
    static = torch.ones(2, 3)
    graph, output = capture(lambda x: x + 1, static)
    with torch.inference_mode():
        output.t_()
    static[0, 2] = 5
    graph.replay()
    assert output.tolist() == [[2, 2], [2, 2], [6, 2]]


def test_an_input_that_is_not_copied_in_is_not_seen() -> None:
    given = static = torch.zeros(3)
    graph, output = capture(lambda x: x + 1, static)
    static = torch.full((3,), 5.0)
    graph.replay()
    assert output.tolist() == [1, 1, 1]
    given.copy_(static)
    graph.replay()
    assert output.tolist() == [6, 6, 6]


def test_a_module_whose_parameter_was_replaced_still_replays_the_old_one() -> None:
    layer = nn.Linear(6, 2)
    graph, output = capture(layer, torch.ones(4, 6))
    before = output.clone()
    layer.weight = nn.Parameter(torch.zeros(2, 6))
    graph.replay()
    assert torch.equal(output, before)
    assert not torch.equal(layer(torch.ones(4, 6)), before)


def test_a_parameter_updated_in_place_is_seen() -> None:
    layer = nn.Linear(6, 2)
    graph, output = capture(layer, torch.ones(4, 6))
    with torch.no_grad():
        layer.weight.zero_()
    graph.replay()
    assert torch.equal(output, layer.bias.detach().expand(4, 2))


def test_numbers_of_python_are_baked_in() -> None:
    settings = {"factor": 2.0}
    graph, output = capture(lambda x: x * settings["factor"], torch.ones(3))
    settings["factor"] = 9.0
    graph.replay()
    assert output.tolist() == [2, 2, 2]


def test_a_counter_advances_with_every_replay() -> None:
    counter = torch.zeros((), dtype=torch.long)
    graph, output = capture(lambda x: x + counter.add_(1), torch.zeros(2))
    assert output.tolist() == [1, 1]
    for expected in (2, 3, 4):
        graph.replay()
        assert (int(counter), output.tolist()) == (expected, [expected, expected])


def test_a_batch_norm_goes_on_counting() -> None:
    layer = nn.BatchNorm1d(6)
    graph, _ = capture(layer, torch.rand(4, 6))
    graph.replay()
    assert layer.num_batches_tracked is not None
    assert torch.equal(layer.num_batches_tracked, torch.tensor(2))


def test_dropout_draws_anew_and_follows_the_seed() -> None:
    graph, output = capture(lambda x: nn.functional.dropout(x, 0.5), torch.ones(64))
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        graph.replay()
        draws.append(output.clone())
    graph.replay()
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[1], draws[2])
    assert not torch.equal(draws[2], output)


def test_nodes_name_what_runs_and_leave_out_views_and_allocations() -> None:
    graph, _ = capture(allocation_filled_later, torch.ones(4, 6))
    assert graph.nodes == ("aten.copy_", "aten.copy_", "aten.sum")
    graph, _ = capture(
        lambda x: x.t().reshape(3, 8)[1:].float().contiguous() @ x.view(8, 3), torch.ones(4, 6)
    )
    assert graph.nodes == ("aten.clone", "aten.mm")
    graph, _ = capture(metadata_changed_in_place, torch.ones(4, 6))
    assert graph.nodes == ("aten.add", "aten.mul", "aten.mul")


def test_pool_bytes_count_every_storage_once() -> None:
    def function(x: Tensor) -> Tensor:
        y = x + 1
        y.mul_(2).view(-1).add_(3)
        return y.double()

    graph, _ = capture(function, torch.ones(4, 6))
    assert graph.pool_bytes == 4 * 6 * (4 + 8)


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_every_grad_mode_records_the_same_and_replays_in_any(guard: Guard) -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.Dropout(0.3), nn.GELU()).eval()
    graph, static = RecordedGraph(), torch.rand(4, 6)
    with guard(), record(graph):
        output = model(static)
    assert graph.nodes == ("aten.addmm", "aten.native_layer_norm", "aten.gelu")
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        static.copy_(torch.rand(4, 6))
        with mode():
            graph.replay()
            assert torch.equal(output, model(static))


def test_results_that_only_grad_mode_asks_for_are_replayed() -> None:
    model, graph, static = nn.LSTM(6, 3), RecordedGraph(), torch.rand(4, 6)
    with record(graph):
        output, _ = model(static)
    static.copy_(torch.rand(4, 6))
    graph.replay()
    assert torch.equal(output, model(static)[0])


def test_what_no_grad_makes_can_be_reset_outside_and_what_inference_mode_makes_cannot() -> None:
    def start_counter() -> Tensor:
        with record(RecordedGraph()):
            return torch.zeros(2).add_(1)

    with torch.no_grad():
        kept = start_counter()
    assert kept.zero_().tolist() == [0, 0]
    with torch.inference_mode():
        kept = start_counter()
    with pytest.raises(RuntimeError, match="InferenceMode"):
        kept.zero_()


def test_autocast_is_recorded_and_does_not_touch_a_replay() -> None:
    layer, graph, static = nn.Linear(6, 6), RecordedGraph(), torch.rand(4, 6)
    autocast = torch.autocast("cpu", torch.bfloat16, cache_enabled=False)
    with torch.inference_mode(), autocast, record(graph):
        half = layer(static)
    full_graph, full = capture(layer, static)
    static.copy_(torch.rand(4, 6))
    with torch.inference_mode(), autocast:
        expected = layer(static)
        full_graph.replay()
    graph.replay()
    assert half.dtype == torch.bfloat16
    assert torch.equal(half, expected)
    assert torch.equal(full, layer(static))


def test_a_graph_keeps_alive_what_only_it_refers_to() -> None:
    def forward() -> tuple[RecordedGraph, Tensor, Tensor]:
        static = torch.rand(512, 512)
        graph, output = capture(nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 512)), static)
        return graph, output, output.clone()

    graph, output, expected = forward()
    [torch.full((512, 512), torch.nan) for _ in range(8)]  # takes any memory that was freed
    graph.replay()
    assert torch.equal(output, expected)


def test_torch_says_that_this_thread_is_capturing_and_no_other() -> None:
    def answer() -> bool | str:
        try:
            return torch.cuda.is_current_stream_capturing()
        except RuntimeError as error:  # torch built without CUDA has no answer
            return str(error)

    question, usual_answer = torch.cuda.is_current_stream_capturing, answer()
    elsewhere: list[bool | str] = []
    with record(RecordedGraph()):
        thread = threading.Thread(target=lambda: elsewhere.append(answer()))
        thread.start()
        thread.join()
        assert (answer(), torch.cuda.graphs.is_current_stream_capturing()) == (True, True)
    assert usual_answer is not True
    assert elsewhere == [usual_answer]
    assert torch.cuda.is_current_stream_capturing is torch.cuda.graphs.is_current_stream_capturing is question
    assert answer() == usual_answer


def test_replay_before_a_capture_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"^replay: this graph holds no capture; .*record"):
        RecordedGraph().replay()


def test_a_second_capture_needs_a_reset() -> None:
    static = torch.ones(2)
    graph, output = capture(lambda x: x + 1, static)
    with (
        pytest.raises(CaptureError, match=r"^record: this graph owns a capture already; .*reset"),
        record(graph),
    ):
        raise AssertionError("must not be entered")
    static.fill_(4)
    graph.replay()  # the first capture is unharmed
    assert output.tolist() == [5, 5]
    graph.reset()
    assert (graph.nodes, graph.pool_bytes) == ((), 0)
    with pytest.raises(CaptureError, match="holds no capture"):
        graph.replay()
    with record(graph):
        output = static * 2
    assert graph.nodes == ("aten.mul",)


def test_a_capture_inside_a_capture_is_refused() -> None:
    outer, inner = RecordedGraph(), RecordedGraph()
    with record(outer):
        with pytest.raises(CaptureError, match=r"^record: another capture is running"), record(inner):
            raise AssertionError("must not be entered")
        result = torch.ones(2) + 1
    outer.replay()
    assert (result.tolist(), inner.nodes) == ([2, 2], ())


def test_replay_and_reset_inside_a_capture_are_refused() -> None:
    ready, _ = capture(lambda x: x + 1, torch.ones(2))
    graph = RecordedGraph()
    with record(graph):
        with pytest.raises(CaptureError, match=r"^replay: a capture is running"):
            ready.replay()
        with pytest.raises(CaptureError, match=r"^reset: this graph is being captured into"):
            graph.reset()
    assert graph.nodes == ()
