"""Calls like one before, by machine code, on tensors of the host's memory and a fake GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.serving.called import refused
from tests.serving.fake_gpu import FakeCard, compiled
from tests.serving.test_cuda import ONE, TWO, pixels
from tilewright.errors import TilewrightError
from tilewright.runtime import DeviceFault
from tilewright.serving import lanes
from tilewright.serving.cuda import CudaCompiled
from tilewright.serving.gpu_arrays import Facts, Looked, TorchKind

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason="this PyTorch's is too old"
)


class OnFake(TorchKind):
    """Tensors of the host's memory, taken for the fake's."""

    stream = 0

    def look(self, array: Any) -> tuple[int, Facts]:
        address, (*facts, _, gradient) = super().look(array)
        return address, (*facts, 0, gradient)

    def read(self, facts: Facts) -> Looked:
        return super().read(facts)._replace(gpu=0)

    def current_stream(self) -> int:
        return self.stream


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
        assert card.driver.launches[-1].stream == on
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


def test_pieces_go_the_long_way(made, monkeypatch):
    network, card = made
    most = 4 * card.plans[0].result_words * 3
    monkeypatch.setattr("tilewright.fuse.cuda.run.SCRATCH_BYTES", most)
    for seed in range(3):
        images, out = batch(network, 7, seed), outputs(7)
        network(images, out=out)
        card.driver.wait(0)
        np.testing.assert_array_equal(out.numpy(), card.expected(images.numpy()))


def test_what_is_known_does_not_pile_up(made, monkeypatch):
    network, card = made
    monkeypatch.setattr(lanes, "MOST_READY", 3)
    for count in range(1, 9):
        first_call(network, card, count)
    assert all(len(lane.known) <= 3 for lane in network.lanes.all)
