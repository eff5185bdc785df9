"""Compiled networks on a GPU that is a fake: addresses, streams, threads, and memory of lanes."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from tests.serving import called
from tests.serving.called import Exchanged, OnGpu, refused
from tests.serving.fake_gpu import FakeCard, FakeTensor, compiled
from tilewright.errors import TilewrightError
from tilewright.model.layers import Convolution, FullyConnected, MaxPool, Pixels, ReLU, Softmax
from tilewright.model.network import Network
from tilewright.runtime import DeviceFault
from tilewright.serving import through
from tilewright.serving.cuda import CudaCompiled
from tilewright.serving.gpu_arrays import handle_of
from tilewright.serving.lanes import MOST_READY, STREAM_OF_THREAD

ONE = Network(  # in one kernel
    "one", Pixels((2, 9, 8)), (Convolution(3, 3), ReLU(), MaxPool(2), FullyConnected(5), Softmax())
)
TWO = Network(  # the large layer has a kernel of its own
    "two", Pixels((1, 20, 20)), (Convolution(8, 3), ReLU(), FullyConnected(96), FullyConnected(5))
)


@pytest.fixture(params=(ONE, TWO), ids=("one", "two"))
def made(request: Any) -> tuple[CudaCompiled, FakeCard]:
    network, card = compiled(request.param)
    assert len(card.plans) == {"one": 1, "two": 2}[request.param.name]
    return network, card


def pixels(network: Any, count: int, seed: int = 0) -> np.ndarray:
    size = (count, *network.network.input.shape)
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


def test_device_memory_is_used_where_it_lies(made):
    network, card = made
    images = pixels(network, 3)
    out = FakeTensor(np.full((3, 5), np.nan, np.float32))
    assert network(FakeTensor(images), out=out) is out
    card.driver.wait(0)
    np.testing.assert_array_equal(out.array, card.expected(images))
    first, *_, last = card.driver.launches[0], card.driver.launches[-1]
    assert first.arguments[0] == images.ctypes.data
    assert last.arguments[1] == out.array.ctypes.data
    assert first.arguments[-1] == last.arguments[-1] == 3
    assert first.grid == (3, 1, 1)
    assert first.block == (card.plans[0].threads, 1, 1)
    assert first.shared_bytes == card.plans[0].shared_bytes


def test_a_new_array_of_the_caller_s_kind(made):
    network, card = made
    for count in (1, 2, 3, 5, 70, 4, 0):
        images = pixels(network, count, count)
        got = network(FakeTensor(images))
        card.driver.wait(0)
        assert type(got) is FakeTensor
        np.testing.assert_array_equal(got.array, card.expected(images))


def test_floats_have_kernels_of_their_own(made):
    network, card = made
    before = len(card.compiled)
    images = pixels(network, 2).astype(np.float32)
    for _ in range(2):
        got = network(FakeTensor(images))
        card.driver.wait(0)
        np.testing.assert_array_equal(got.array, card.expected(images))
    assert len(card.compiled) == before + 1  # only the kernel that reads images


def test_the_given_stream_and_the_current_one(made):
    network, card = made
    kind: Any = network.kinds[FakeTensor]
    given, current = card.new_stream(), card.new_stream()
    kind.now.stream = current
    images = FakeTensor(pixels(network, 2))
    network(images)
    network(images, stream=given)
    card.driver.wait_for_all()
    kernels = len(card.plans)
    streams = [each.stream for each in card.driver.launches]
    assert streams == [current] * kernels + [given] * kernels
    assert kind.empty_on == [None, given]


def test_what_a_stream_is():
    class Torch:
        cuda_stream = 5

    class Cupy:
        ptr = 6

    class Other:
        def __cuda_stream__(self):
            return (0, 7)

    assert [handle_of(each) for each in (4, Torch(), Cupy(), Other())] == [4, 5, 6, 7]
    with pytest.raises(TilewrightError, match="stream of type str"):
        handle_of("default")


@pytest.mark.parametrize("own_stream", [True, False], ids=["streams", "one-stream"])
def test_eight_threads(made, own_stream):
    """Each with a stream of its own, or all on one; threads that the GPU has never seen."""
    network, card = made
    kind: Any = network.kinds[FakeTensor]
    streams = [card.new_stream() if own_stream else 0 for _ in range(8)]
    wrong: list[object] = []
    ready = threading.Barrier(8)

    def call(index: int) -> None:
        kind.now.stream = streams[index]
        batches = [pixels(network, 1 + (index + k) % 5, 100 * index + k) for k in range(20)]
        given = []
        try:
            for each in batches:
                ready.wait(timeout=100)  # the machine may be busy
                given.append(network(FakeTensor(each)))
        except Exception as error:
            wrong.append(error)
            return
        card.driver.wait(streams[index])
        for each, got in zip(batches, given, strict=True):
            if not np.array_equal(got.array, card.expected(each)):
                wrong.append((index, got.array, card.expected(each)))

    threads = [threading.Thread(target=call, args=(index,)) for index in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []
    if own_stream:
        where = {each.thread: each.stream for each in card.driver.launches}
        assert sorted(where.values()) == sorted(streams)


def test_arrays_of_the_host_go_through(made, monkeypatch):
    torch = pytest.importorskip("torch")
    network, card = made
    monkeypatch.setattr(network.through, "piece", 4)
    for count in (1, 3, 4, 11, 0, 2):
        images = pixels(network, count, count)
        got = network(images)
        assert type(got) is np.ndarray
        np.testing.assert_array_equal(got, card.expected(images))
        np.testing.assert_array_equal(network(Exchanged(images)), got)
        tensor = network(torch.from_numpy(images))
        assert type(tensor) is torch.Tensor
        np.testing.assert_array_equal(tensor.numpy(), got)
        out = np.empty_like(got)
        assert network(images.astype(np.float32), out=out) is out
        np.testing.assert_array_equal(out, got)
    given = card.new_stream()
    before = len(card.driver.launches)
    network(pixels(network, 3), stream=given)
    assert {each.stream for each in card.driver.launches[before:]} == {given}
    assert all(each.capacity <= 4 for each in network.through.all)


def test_arrays_of_the_host_are_refused_as_on_the_cpu():
    network, _ = compiled(called.BARE)
    called.check_refusals(network)


def test_threads_with_arrays_of_the_host_have_streams_of_their_own(made):
    network, card = made
    wrong: list[int] = []

    def call(index: int) -> None:
        for k in range(4):
            images = pixels(network, 1 + index % 3, 10 * index + k)
            if not np.array_equal(network(images), card.expected(images)):
                wrong.append(index)

    threads = [threading.Thread(target=call, args=(index,)) for index in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []
    assert 0 not in {each.stream for each in card.driver.launches}
    assert len(network.through.all) <= 8


def test_a_captured_graph_keeps_its_memory_to_itself():
    """It is launched again whenever its owner likes, and wherever: here between two calls."""
    network, card = compiled(TWO)
    stream = card.driver.streams[handle := card.new_stream()]
    x, y = FakeTensor(pixels(network, 2, 1)), FakeTensor(pixels(network, 2, 2))
    network(y, stream=handle)
    stream.captured = graph = []
    out = network(x, stream=handle)
    stream.captured = None
    assert len(graph) == 2
    other = FakeTensor(np.empty((2, 5), np.float32))
    network(y, out=other, stream=handle)
    first, second = card.driver.launches[2:4], card.driver.launches[4:]
    assert first[0].arguments[1] != second[0].arguments[1]
    for _ in range(3):  # on another stream, while the same one works
        for work in graph:
            card.driver.streams[0].add(work)
        network(y, out=other, stream=handle)
    card.driver.wait_for_all()
    np.testing.assert_array_equal(out.array, card.expected(x.array))
    np.testing.assert_array_equal(other.array, card.expected(y.array))


def test_a_thread_s_own_default_stream_is_another_in_each_thread():
    """The driver knows them all by the same number."""
    network, card = compiled(TWO)
    card.driver.streams[STREAM_OF_THREAD] = card.driver.streams[card.new_stream()]
    images = FakeTensor(pixels(network, 1))
    for _ in range(2):
        thread = threading.Thread(target=network, args=(images,), kwargs={"stream": 2})
        thread.start()
        thread.join()
    card.driver.wait_for_all()
    first, second = card.driver.launches[0], card.driver.launches[2]
    assert first.arguments[1] != second.arguments[1]


def test_what_was_launched_before_keeps_its_memory_when_batches_grow():
    network, card = compiled(TWO)
    batches = [pixels(network, count, count) for count in (1, 2, 9, 1, 40)]
    given = [network(FakeTensor(each)) for each in batches]
    card.driver.wait(0)
    for each, got in zip(batches, given, strict=True):
        np.testing.assert_array_equal(got.array, card.expected(each))
    assert [lane.capacity for lane in network.lanes.all] == [1, 2, 16, 64]


def test_a_largest_batch_is_made_room_for_at_once():
    network, card = compiled(TWO, batch=10)
    for count in (1, 10, 4):
        network(FakeTensor(pixels(network, count)))
    card.driver.wait(0)
    assert [lane.capacity for lane in network.lanes.all] == [10]
    refused(network, "11 images at once", FakeTensor(pixels(network, 11)))
    refused(network, "11 images at once", pixels(network, 11))


def test_a_call_costs_nothing_that_was_done_before(made):
    """The second of a size notes nothing, compiles nothing and allocates nothing."""
    network, card = made
    images, out = FakeTensor(pixels(network, 2)), FakeTensor(np.empty((2, 5), np.float32))
    network(images, out=out)
    card.preparing = None  # type: ignore[assignment]
    network(images, out=out)
    card.driver.wait(0)


def test_sizes_that_are_ready_do_not_pile_up(monkeypatch):
    network, card = compiled(ONE)
    monkeypatch.setattr("tilewright.serving.lanes.MOST_READY", 3)
    assert MOST_READY > 3
    for count in range(1, 9):
        network(FakeTensor(pixels(network, count)))
    card.driver.wait(0)
    assert all(len(lane.ready) <= 3 for lane in network.lanes.all)


def test_large_batches_go_through_in_pieces_with_offsets(monkeypatch):
    network, card = compiled(TWO)
    monkeypatch.setattr(
        "tilewright.fuse.cuda.run.SCRATCH_BYTES", 4 * card.plans[0].result_words * 3
    )
    images = pixels(network, 7)
    got = network(FakeTensor(images))
    card.driver.wait(0)
    np.testing.assert_array_equal(got.array, card.expected(images))
    assert [each.arguments[-1] for each in card.driver.launches] == [3, 3, 3, 3, 1, 1]


def test_refusals(made):
    network, _ = made
    shape = network.network.input.shape

    def no(words: str, array: np.ndarray, gpu: int = 0, **more: Any) -> None:
        refused(network, words, FakeTensor(array, gpu), **more)

    good = pixels(network, 2)
    for kind in ("float64", "int64", "float16"):
        no(f"images are {kind}: give uint8", good.astype(kind))
    no("takes batches of", good[0])
    no("but .* takes", np.zeros((2, 1, 1, 1), np.uint8))
    no("images are not contiguous, and on a GPU nothing is copied", good[::-1])
    no("lie on GPU 1, .* device='cuda:1'", good, gpu=1)
    memory = np.zeros(good.size + 64, np.uint8)
    start = -memory.ctypes.data % 16 + 1
    no("no multiple of 16 bytes", memory[start : start + good.size].reshape(2, *shape))

    def bad(words: str, out: Any) -> None:
        refused(network, words, FakeTensor(good), out=out)

    bad("out is float64", FakeTensor(np.empty((2, 5))))
    bad("out is 3x5, and the outputs are 2x5", FakeTensor(np.empty((3, 5), np.float32)))
    bad("out is not contiguous", FakeTensor(np.empty((5, 2), np.float32).T))
    bad("out lies on GPU 1, and the images on GPU 0", FakeTensor(np.empty((2, 5), np.float32), 1))
    bad("out lies in the host's memory", np.empty((2, 5), np.float32))
    refused(network, "out lies on a GPU", good, out=OnGpu(np.empty((2, 5), np.float32)))
    floats = good.astype(np.float32)
    inside = FakeTensor(floats.reshape(-1)[:10].reshape(2, 5))
    refused(network, "where the images do", FakeTensor(floats), out=inside)


def test_images_of_a_batch_may_begin_anywhere_in_another():
    network, card = compiled(Network("odd", Pixels((1, 5, 5)), (FullyConnected(3),)))
    images = pixels(network, 4)
    got = network(FakeTensor(images[1:]))
    card.driver.wait(0)
    np.testing.assert_array_equal(got.array, card.expected(images[1:]))


def test_a_thread_that_works_on_another_gpu(made):
    """Its context is as it was afterwards; a lane is not lost for it."""
    network, card = made
    card.driver.contexts.now = 5
    for _ in range(3):
        got = network(FakeTensor(images := pixels(network, 2)))
        assert card.driver.contexts.now == 5
    card.driver.wait(0)
    np.testing.assert_array_equal(got.array, card.expected(images))
    assert len(network.lanes.all) <= 2


def test_what_the_driver_refuses_is_said(made):
    network, card = made
    card.driver.error = 700
    for images in (FakeTensor(pixels(network, 1)), pixels(network, 1)):
        with pytest.raises(DeviceFault, match="error 700"):
            network(images)


def test_nothing_is_given_back_while_it_is_used():
    network, card = compiled(TWO)
    out = network(FakeTensor(pixels(network, 1)))
    del network
    assert card.driver.streams[0].work.unfinished_tasks == 0
    assert np.isfinite(out.array).all()


def test_pieces_of_the_host_are_a_few_megabytes():
    network, _ = compiled(ONE)
    assert 1 < network.through.piece * 4 * 2 * 9 * 8 <= through.PIECE_BYTES


def test_handles_are_passed_whole(made):
    network, card = made
    high = (1 << 40) + 5
    card.driver.streams[high] = card.driver.streams[0]
    network(FakeTensor(pixels(network, 3)), stream=high)
    card.driver.wait(0)
    assert {each.stream for each in card.driver.launches} == {high}
