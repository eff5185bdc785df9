"""Calls like one before, by machine code, on tensors of the host's memory and a fake GPU."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from tests.serving.called import refused
from tests.serving.fake_gpu import FakeCard, FakeTensor, compiled
from tests.serving.test_cuda import ONE, TWO, pixels
from tilewright.errors import TilewrightError
from tilewright.runtime import DeviceFault
from tilewright.serving import lanes
from tilewright.serving.again import telling
from tilewright.serving.at_once import GRAPHS
from tilewright.serving.cuda import CudaCompiled
from tilewright.serving.gpu_arrays import Facts
from tilewright.serving.launches import ENOUGH
from tilewright.serving.of_torch import TorchKind

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason="this PyTorch's is too old"
)


class OnFake(TorchKind):
    """Tensors of the host's memory, taken for the fake's."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.stream, self.gpu = 0, 0
        self.device, self.current_stream = lambda: self.gpu, lambda: self.stream
        self.now, self.work_on = lambda gpu: (self.stream, gpu, 1), lambda *stream: None
        self.new = torch._C._dynamo.guards._empty_strided_cpu

    def look(self, array: Any) -> tuple[int, Facts]:
        address, (*facts, _, gradient) = super().look(array)
        return address, (*facts, 0, gradient)


class Called(Exception):
    """The long way was gone."""


@pytest.fixture(params=(ONE, TWO), ids=("one", "two"))
def made(request: Any) -> tuple[CudaCompiled, FakeCard]:
    network, card = compiled(request.param)
    network.kinds[torch.Tensor] = OnFake(0)
    with card.driver.inside():
        pass  # the thread is known to the GPU from then on
    return network, card


def batch(network: CudaCompiled, count: int, seed: int = 0) -> Any:
    return torch.from_numpy(pixels(network, count, seed))


def outputs(count: int) -> Any:
    return torch.full((count, 5), torch.nan)


def first_call(network: CudaCompiled, card: FakeCard, count: int) -> None:
    images, out = batch(network, count), outputs(count)
    network(images, out=out)
    card.driver.wait(0)


def only_again(network: CudaCompiled, monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(*given: Any) -> None:
        raise Called

    monkeypatch.setattr(network.lanes, "launch", launch)


def test_the_next_call_launches_the_same_on_other_arrays(made, monkeypatch):
    network, card = made
    first_call(network, card, 3)
    only_again(network, monkeypatch)
    for seed in (1, 2):
        images, out = batch(network, 3, seed), outputs(3)
        assert network(images, out=out) is out
        card.driver.wait(0)
        np.testing.assert_array_equal(out.numpy(), card.expected(images.numpy()))
    first, last = card.driver.launches[0], card.driver.launches[-len(card.plans)]
    assert (first.grid, first.block, first.shared_bytes) == (
        last.grid, last.block, last.shared_bytes
    )  # fmt: skip


def test_what_differs_goes_the_long_way(made, monkeypatch):
    network, card = made
    images, out = batch(network, 3), outputs(3)
    network(images, out=out)
    card.driver.wait(0)
    only_again(network, monkeypatch)
    network(images, out=out)
    card.driver.wait(0)
    before = len(card.driver.launches)
    memory = torch.zeros(images.numel() + 64, dtype=torch.uint8)
    start = -memory.data_ptr() % 16 + 1
    floats = images.float()
    for other, into in (
        (batch(network, 2), outputs(2)),
        (floats, out),
        (images, outputs(3).double()),
        (images, torch.empty((5, 3)).T),
        (images.permute(0, 1, 3, 2), out),
        (memory[start : start + images.numel()].view(images.shape), out),
    ):
        with pytest.raises((Called, TilewrightError)):
            network(other, out=into)
    assert len(card.driver.launches) == before


def test_the_same_memory_is_still_refused(made):
    network, card = made
    images = batch(network, 4).float()
    out = outputs(4)
    network(images, out=out)
    card.driver.wait(0)
    refused(network, "where the images do", images, out=images.view(-1)[8:28].view(4, 5))
    refused(network, "requires a gradient", images, out=outputs(4).requires_grad_())
    refused(network, "requires a gradient", images.clone().requires_grad_(), out=outputs(4))


def test_sizes_in_turns_and_streams(made):
    network, card = made
    kind: Any = network.kinds[torch.Tensor]
    streams = [0, card.new_stream(), card.new_stream()]
    for turn in range(12):
        kind.stream = streams[turn % 3]
        images, out = batch(network, 1 + turn % 2, turn), outputs(1 + turn % 2)
        given = {"stream": streams[turn % 2]} if turn > 8 else {}
        network(images, out=out, **given)
        on = given.get("stream", kind.stream)
        assert card.driver.latest == on
        card.driver.wait(on)
        np.testing.assert_array_equal(out.numpy(), card.expected(images.numpy()))


def test_a_stream_that_is_captured(made):
    """It has a lane to itself, though a call on it went well before."""
    network, card = made
    stream = card.driver.streams[handle := card.new_stream()]
    x, y, out, other = batch(network, 2, 1), batch(network, 2, 2), outputs(2), outputs(2)
    network(y, out=other, stream=handle)
    stream.captured = graph = []
    network(x, out=out, stream=handle)
    stream.captured = None
    network(y, out=other, stream=handle)
    for work in graph:
        stream.add(work)
    card.driver.wait_for_all()
    np.testing.assert_array_equal(out.numpy(), card.expected(x.numpy()))
    np.testing.assert_array_equal(other.numpy(), card.expected(y.numpy()))


def test_threads_that_the_gpu_never_saw_and_errors(made):
    network, card = made
    images, out = batch(network, 2), outputs(2)
    network(images, out=out)
    card.driver.contexts.now = 5
    network(images, out=out)
    assert card.driver.contexts.now == 5
    card.driver.wait(0)
    np.testing.assert_array_equal(out.numpy(), card.expected(images.numpy()))
    card.driver.contexts.now, card.driver.error = 77, 700
    with pytest.raises(DeviceFault, match="error 700"):
        network(images, out=out)
    assert len(network.lanes.all) <= 2


def test_new_outputs_where_none_are_given(made, monkeypatch):
    network, card = made
    images = batch(network, 3)
    before = network(images)
    card.driver.wait(0)
    with monkeypatch.context() as patched:
        only_again(network, patched)
        got = network(batch_of_ones := torch.ones_like(images))
        card.driver.wait(0)
        with pytest.raises(Called):
            network(batch(network, 2))
    assert type(got) is torch.Tensor and got.data_ptr() != before.data_ptr()
    np.testing.assert_array_equal(got.numpy(), card.expected(batch_of_ones.numpy()))
    refused(network, "images are int64", images.long())


def test_the_same_memory_becomes_a_graph(made):
    """Its contents change; from the call after those that are enough on it is replayed."""
    network, card = made
    driver, stream = card.driver, card.new_stream()
    images, out, other = batch(network, 2), outputs(2), outputs(2)
    for turn in range(4 + ENOUGH):
        images.copy_(batch(network, 2, turn))
        assert network(images, out=out, stream=stream) is out
        driver.wait(stream)
        np.testing.assert_array_equal(out.numpy(), card.expected(images.numpy()))
    assert driver.replays == [stream] * 4 and len(driver.graphs) == 1 and not driver.moves
    launched = len(driver.launches)
    network(images, out=other, stream=stream)
    driver.wait(stream)
    np.testing.assert_array_equal(other.numpy(), card.expected(images.numpy()))
    # The graph is moved there: of its kernels only the one that writes outputs.
    assert len(driver.launches) == launched and driver.moves == [(1, len(card.plans) - 1)]


def test_some_graphs_are_kept(made):
    """For as many memories as there is room for; then the oldest is moved."""
    network, card = made
    driver, images, outs = card.driver, batch(network, 2), [outputs(2) for _ in range(GRAPHS + 1)]
    for _ in range(2):
        for out in outs[:GRAPHS]:
            for _ in range(ENOUGH + 2):
                network(images, out=out)
    assert len(driver.graphs) == GRAPHS
    launched, moved = len(driver.launches), len(driver.moves)
    for out in outs[:GRAPHS]:
        network(images, out=out)
    assert len(driver.launches) == launched and len(driver.moves) == moved
    for _ in range(3):
        network(images, out=outs[-1])
    assert len(driver.graphs) == GRAPHS and len(driver.moves) == moved + 1
    for out in outs[:GRAPHS]:
        network(images, out=out)
    card.driver.wait(0)
    assert len(driver.launches) == launched
    for out in outs:
        np.testing.assert_array_equal(out.numpy(), card.expected(images.numpy()))


def test_memory_that_always_changes(made):
    """What was replayed before keeps its memory."""
    network, card = made
    given = [(batch(network, 2, seed), outputs(2)) for seed in range(30)]
    for images, out in given:
        network(images, out=out)
    card.driver.wait(0)
    for images, out in given:
        np.testing.assert_array_equal(out.numpy(), card.expected(images.numpy()))
    assert len(card.driver.graphs) == GRAPHS
    assert len(card.driver.launches) == len(card.plans) * (ENOUGH + GRAPHS - 1)


def test_a_graph_that_the_driver_does_not_move_is_nobody_s():
    network, card = compiled(TWO)
    images, out, other = (FakeTensor(each) for each in (
        pixels(network, 2), np.empty((2, 5), np.float32), np.empty((2, 5), np.float32)
    ))  # fmt: skip
    for _ in range(2 + ENOUGH):
        network(images, out=out)
    card.driver.error = 700
    with pytest.raises(DeviceFault, match="error 700"):
        network(images, out=other)
    card.driver.error = 0
    for each in (out, other):
        network(images, out=each)
        card.driver.wait(0)
        np.testing.assert_array_equal(each.array, card.expected(images.array))


def test_a_graph_that_was_moved_in_part_is_nobody_s(monkeypatch):
    """Of two pieces of a batch, the first already wrote elsewhere."""
    network, card = compiled(TWO)
    most = 4 * card.plans[0].result_words * 3
    monkeypatch.setattr("tilewright.fuse.cuda.run.SCRATCH_BYTES", most)
    images, others = (FakeTensor(pixels(network, 6, seed)) for seed in range(2))
    out, other = (FakeTensor(np.empty((6, 5), np.float32)) for _ in range(2))
    for _ in range(2 + ENOUGH):
        network(images, out=out)
    driver = card.driver
    driver.wait(0)
    assert driver.replays and not driver.moves

    class Few(list):
        """The driver's moves, of which the third is refused."""

        def append(self, move: Any) -> None:
            super().append(move)
            driver.error = 700 if len(self) == 2 else 0

    driver.moves = Few()
    with pytest.raises(DeviceFault, match="error 700"):
        network(others, out=other)
    assert [place for _, place in driver.moves] == [0, 1]
    driver.error, driver.moves = 0, []
    out.array[:] = np.nan
    network(images, out=out)
    driver.wait(0)
    np.testing.assert_array_equal(out.array, card.expected(images.array))


@pytest.mark.usefixtures("not_optimised")
def test_graphs_end_with_the_network():
    network, card = compiled(TWO)
    images, out = FakeTensor(pixels(network, 2)), FakeTensor(np.empty((2, 5), np.float32))
    for _ in range(2 + ENOUGH):
        network(images, out=out)
    card.driver.wait(0)
    assert len(card.driver.graphs) == 1 and card.driver.replays
    del network
    gc.collect()
    assert card.driver.graphs == card.driver.all_series == {}


def test_a_graph_is_not_replayed_into_another(made):
    """On a stream that is captured its kernels are launched, in memory of their own."""
    network, card = made
    stream = card.driver.streams[handle := card.new_stream()]
    images, out = batch(network, 2), outputs(2)
    for _ in range(3 + ENOUGH):
        network(images, out=out, stream=handle)
    before = len(card.driver.replays)
    assert before
    stream.captured = graph = []
    network(images, out=out, stream=handle)
    stream.captured = None
    assert len(graph) == len(card.plans) and len(card.driver.replays) == before
    card.driver.wait_for_all()


def test_many_streams_share_lanes_where_they_can(made, monkeypatch):
    network, card = made
    monkeypatch.setattr(lanes, "MOST_STREAMS", 2)
    images, outs = batch(network, 2), [outputs(2) for _ in range(4)]
    for out in outs:
        for _ in range(3 + ENOUGH):
            network(images, out=out, stream=(stream := card.new_stream()))
            card.driver.wait(stream)
        np.testing.assert_array_equal(out.numpy(), card.expected(images.numpy()))
    if len(card.plans) == 1:
        assert len(network.lanes.all) == 3


def test_pieces_go_the_long_way(made, monkeypatch):
    network, card = made
    most = 4 * card.plans[0].result_words * 3
    monkeypatch.setattr("tilewright.fuse.cuda.run.SCRATCH_BYTES", most)
    for seed in range(3):
        images, out = batch(network, 7, seed), outputs(7)
        network(images, out=out)
        card.driver.wait(0)
        np.testing.assert_array_equal(out.numpy(), card.expected(images.numpy()))


@pytest.mark.parametrize("table", [None, 5, np.zeros(1).__dlpack__()], ids=["none", "int", "other"])
def test_a_table_of_another_form_is_none(table):
    assert telling(torch.Tensor)
    assert telling(type("Arrays", (), {"__dlpack_c_exchange_api__": table})) == 0


def test_what_is_known_does_not_pile_up(made, monkeypatch):
    network, card = made
    monkeypatch.setattr(lanes, "MOST_READY", 3)
    for count in range(1, 9):
        first_call(network, card, count)
    assert all(len(lane.known) <= 3 for lane in network.lanes.all)
