"""Compiled networks on a CUDA GPU: whose memory, which stream, how many threads, which values."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.serving import called
from tilewright.execute import program_of
from tilewright.model import zoo
from tilewright.model.layers import Add, Convolution, FullyConnected, Pixels, ReLU
from tilewright.model.network import Network
from tilewright.rungs import choose
from tilewright.runtime import cuda
from tilewright.runtime.device import CUDA
from tilewright.serving.launches import ENOUGH
from tilewright.truth import reference
from tilewright.truth.attempt import compare
from tilewright.truth.trials import random_parameters

REASON = cuda.missing(CUDA)
pytestmark = [pytest.mark.cuda, pytest.mark.skipif(REASON is not None, reason=str(REASON))]

TWO = Network(  # two kernels, with memory between them, and sums that blocks share
    "two", Pixels((1, 20, 20)), (Convolution(8, 3), ReLU(), FullyConnected(96), FullyConnected(5))
)


class Interface:
    """An array that knows CUDA's array interface and nothing else."""

    def __init__(self, array: Any) -> None:
        self.__cuda_array_interface__ = array.__cuda_array_interface__
        self.array = array


def filled(network: Network) -> Network:
    return network.with_parameters(random_parameters(network, np.random.default_rng(0)))


def drawn(network: Network, count: int, seed: int = 0) -> np.ndarray:
    size = (count, *network.input.shape)
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


@pytest.fixture(scope="module", params=("small", "two", "cifar10"))
def network(request: Any) -> Network:
    if request.param == "cifar10":
        return tilewright.load("cifar10")
    return called.SMALL if request.param == "small" else filled(TWO)


@pytest.fixture(scope="module")
def compiled(network: Network) -> Any:
    return tilewright.compile(network, "cuda")


@pytest.fixture(scope="module")
def torch() -> Any:
    found = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    return found


def test_every_size_of_batch(network, compiled):
    """1 to 300 against the truth, in an order in which memory grows and is used again."""
    import cupy

    images = drawn(network, 300)
    truth = reference.chain(network.stages, network.parameters, images)[-1]
    everything = cupy.asarray(images)
    counts = [1, 2, 300, 3, *np.random.default_rng(1).permutation(np.arange(4, 300))]
    for count in map(int, counts):
        out = cupy.full((count, *network.output_shape), cupy.nan, cupy.float32)
        assert compiled(everything[:count], out=out) is out
        part = reference.Truth(truth.value[:count], truth.bound[:count])
        _, problem = compare(cupy.asnumpy(out), part)
        assert problem is None, f"{count} images: {problem}"


@pytest.mark.parametrize("precision", ["fp32", "tf32x3", "tf32", "fp16"])
def test_the_same_outputs_as_a_run_s(network, precision):
    import cupy

    images = drawn(network, 70)
    program = program_of(network, choose(CUDA, "network", precision), CUDA, 70)
    compiled = tilewright.compile(network, "cuda", precision=precision, batch=70)
    expected = program(images)
    np.testing.assert_array_equal(compiled(images), expected)
    np.testing.assert_array_equal(cupy.asnumpy(compiled(cupy.asarray(images))), expected)


@pytest.mark.parametrize(
    "precision, off", [("fp32", 1e-5), ("tf32x3", 1e-5), ("tf32", 5e-3), ("fp16", 5e-3)]
)
def test_layers_that_are_alike(precision, off):
    """Five of them are a loop in the kernel: one layer left out is far from what it should be."""
    alike = (Convolution(16, 3, padding=1), ReLU()) * 6
    network = filled(Network("alike", Pixels((3, 16, 16)), (*alike, FullyConnected(5))))
    program = program_of(network, choose(CUDA, "network", precision), CUDA, 300)
    images = drawn(network, 300)
    expected = reference.chain(network.stages, network.parameters, images)[-1].value
    largest = np.abs(expected).max()
    for count in (300, 3):
        np.testing.assert_allclose(program(images[:count]), expected[:count], atol=off * largest)


@pytest.mark.parametrize(
    "precision, off", [("fp32", 1e-5), ("tf32x3", 1e-5), ("tf32", 5e-3), ("fp16", 5e-3)]
)
@pytest.mark.parametrize("channels", [16, 24])
def test_residual_blocks_that_are_alike(precision, off, channels):
    """A loop in which each turn chooses what it does; with 24 channels by warpgroups, too."""
    one = Convolution(channels, 3, padding=1)
    layers, sources = [one, ReLU()], [(0,), (1,)]
    for first in range(2, 17, 5):
        layers += [one, ReLU(), one, Add(), ReLU()]
        sources += [(first,), (first + 1,), (first + 2,), (first + 3, first), (first + 4,)]
    layers, sources = (*layers, FullyConnected(5)), (*sources, (len(layers),))
    network = filled(Network("blocks", Pixels((3, 16, 16)), layers, sources=sources))
    program = program_of(network, choose(CUDA, "network", precision), CUDA, 300)
    images = drawn(network, 300)
    expected = reference.chain(network.stages, network.parameters, images)[-1].value
    largest = np.abs(expected).max()
    for count in (300, 3):
        np.testing.assert_allclose(program(images[:count]), expected[:count], atol=off * largest)


def test_host_arrays():
    compiled = tilewright.compile(called.SMALL, "cuda")
    called.check_values(compiled, (1, 2, 7, 40))
    called.check_kinds(compiled)
    called.check_out(compiled)
    called.check_refusals(compiled)
    called.check_threads(compiled)


def test_more_than_goes_through_at_once(compiled, network, monkeypatch):
    images = drawn(network, 50)
    expected = compiled(images)
    monkeypatch.setattr(compiled.through, "piece", 8)
    np.testing.assert_allclose(compiled(images), expected, rtol=1e-4, atol=1e-4)


def test_tensors_on_the_gpu(network, compiled, torch):
    images = drawn(network, 5)
    given = torch.from_numpy(images).cuda()
    got = compiled(given)
    assert got.is_cuda and got.dtype == torch.float32
    np.testing.assert_array_equal(got.cpu().numpy(), compiled(images))
    out = torch.full((5, *network.output_shape), torch.nan, device="cuda")
    address = out.data_ptr()
    assert compiled(given, out=out) is out and out.data_ptr() == address
    torch.testing.assert_close(out, got, rtol=0, atol=0)
    values = compiled(given.float())
    np.testing.assert_array_equal(values.cpu().numpy(), compiled(images.astype(np.float32)))
    columns = given.shape[3]
    wide = torch.cat([given, given], 3)
    called.refused(compiled, "images are not contiguous", wide[..., :columns])
    called.refused(compiled, "images are int64", given.long())
    called.refused(compiled, "requires a gradient", given.float().requires_grad_())
    called.refused(compiled, "out lies in the host's memory", given, out=out.cpu().numpy())


def test_nothing_is_copied(network, compiled, torch):
    """PyTorch allocates the outputs alone, and CuPy nothing."""
    import cupy

    given = torch.from_numpy(drawn(network, 64)).cuda()
    out = compiled(given)
    torch.cuda.synchronize()
    gc.collect()  # what others left is not given back in between
    before, pool = torch.cuda.memory_allocated(), cupy.get_default_memory_pool().used_bytes()
    compiled(given, out=out)
    assert torch.cuda.memory_allocated() == before
    assert cupy.get_default_memory_pool().used_bytes() == pool


def test_arrays_of_others(network, compiled, torch):
    """DLPack, and CUDA's array interface: CuPy's array comes back."""
    import cupy

    images = drawn(network, 5)
    given = cupy.asarray(images)
    for array in (called.Exchanged(given), Interface(given)):
        got = compiled(array)
        assert type(got) is cupy.ndarray
        np.testing.assert_array_equal(cupy.asnumpy(got), compiled(images))
    out = torch.empty((5, *network.output_shape), device="cuda")
    assert compiled(given, out=out) is out
    torch.cuda.synchronize()
    np.testing.assert_array_equal(out.cpu().numpy(), compiled(images))


@pytest.mark.parametrize("how", ["given", "handle", "current"])
def test_work_is_on_the_stream(network, compiled, torch, how):
    """Behind a stream's earlier work: images are written there after a long pause."""
    images = torch.from_numpy(drawn(network, 9)).cuda()
    expected = compiled(images)
    late, side = torch.zeros_like(images), torch.cuda.Stream()
    out = torch.full_like(expected, torch.nan)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)
        late.copy_(images)
        if how == "current":
            compiled(late, out=out)
            fresh = compiled(late)
    if how != "current":
        stream = side if how == "given" else side.cuda_stream
        compiled(late, out=out, stream=stream)
        fresh = compiled(late, stream=stream)
    assert not side.query()  # it did not wait
    side.synchronize()
    torch.testing.assert_close(out, expected, rtol=0, atol=0)
    torch.testing.assert_close(fresh, expected, rtol=0, atol=0)


def test_cupy_s_streams(network, compiled):
    import cupy

    images = drawn(network, 9)
    expected = compiled(images)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        got = compiled(cupy.asarray(images))
        np.testing.assert_array_equal(cupy.asnumpy(got, stream=stream), expected)
    given = cupy.asarray(images)
    cupy.cuda.runtime.deviceSynchronize()
    got = compiled(given, stream=stream)
    stream.synchronize()
    np.testing.assert_array_equal(cupy.asnumpy(got), expected)


def test_the_same_memory_again_and_again(network, compiled, torch):
    """A graph from the fifth call on: of its contents then, on its stream, beside another's."""
    batches = [torch.from_numpy(drawn(network, 3, seed)).cuda() for seed in range(12)]
    expected = [compiled(each) for each in batches]
    sides = [torch.cuda.Stream() for _ in range(2)]
    static = [torch.zeros_like(batches[0]) for _ in sides]
    outs = [[torch.full_like(expected[0], torch.nan) for _ in sides] for _ in range(2)]
    torch.cuda.synchronize()
    for turn, (images, want) in enumerate(zip(batches, expected, strict=True)):
        for side, held, out in zip(sides, static, outs[turn > 9], strict=True):
            with torch.cuda.stream(side):
                held.copy_(images)
                compiled(held, out=out)
                got = out.clone()
            side.synchronize()
            torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_memory_that_always_changes(network, compiled, torch):
    """Nobody waits: what was launched before keeps its memory, also where graphs are moved."""
    gc.collect()  # compiled networks that others left behind wait for the GPU when they go
    batches = [torch.from_numpy(drawn(network, 3, seed)).cuda() for seed in range(40)]
    expected = [
        compiled(each, out=torch.empty((3, *network.output_shape)).cuda()) for each in batches
    ]
    sides = [torch.cuda.Stream() for _ in range(2)]
    for side in sides:
        for _ in range(ENOUGH + 1):  # kernels are loaded and graphs are made: that may wait
            compiled(batches[0], stream=side)
    torch.cuda.synchronize()
    got: list[list[Any]] = [[], []]
    for side in sides:
        with torch.cuda.stream(side):
            torch.cuda._sleep(2_000_000_000)
    waited = []
    for each in batches:
        for side, answers in zip(sides, got, strict=True):
            start = time.perf_counter()
            answers.append(compiled(each, stream=side))
            waited.append(round(time.perf_counter() - start, 4))
    assert not sides[0].query(), f"seconds of each call: {waited}"
    torch.cuda.synchronize()
    for answers in got:
        assert len({each.data_ptr() for each in answers}) == len(answers)
        for each, want in zip(answers, expected, strict=True):
            torch.testing.assert_close(each, want, rtol=0, atol=0)


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_an_answer_s_memory_is_its_stream_s(network, compiled, torch, library):
    """Dropped before it is written, it must not be somebody's on another stream meanwhile."""
    import cupy

    images = torch.from_numpy(drawn(network, 9)).cuda()
    shape, side = compiled(images).shape, torch.cuda.Stream()
    given = images if library == "torch" else cupy.from_dlpack(images)
    compiled(given, stream=side)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(2_000_000_000)  # a second: the host may be busy
    for _ in range(20):
        compiled(given, stream=side)  # and dropped
    assert not side.query()
    if library == "torch":
        others = [torch.full(shape, 7.0, device="cuda") for _ in range(20)]
    else:
        others = [cupy.full(tuple(shape), 7, cupy.float32) for _ in range(20)]
    torch.cuda.synchronize()
    assert all(bool((each == 7).all()) for each in others)


def test_all_kinds_from_eight_threads(network, compiled, torch):
    """Each on a stream of its own, with memory that changes, and nobody waits between calls."""
    import cupy

    kinds = (cupy.asarray, called.Exchanged, Interface, torch.as_tensor)
    images = [cupy.asarray(drawn(network, 1 + index, index)) for index in range(8)]
    expected = [cupy.asnumpy(compiled(each)) for each in images]
    torch.cuda.synchronize()
    wrong: list[object] = []

    def call(index: int) -> None:
        try:
            stream = torch.cuda.Stream()
            given = kinds[index % 4](images[index])
            got = [compiled(given, stream=stream) for _ in range(60)]
            stream.synchronize()
            for each in got:
                values = each.cpu().numpy() if index % 4 == 3 else cupy.asnumpy(each)
                if not np.array_equal(values, expected[index]):
                    wrong.append(index)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=call, args=(index,)) for index in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []


def test_inside_a_graph_of_the_caller_s(network, compiled, torch):
    """Captured, replayed with other images, while calls on other streams go on."""
    images = torch.from_numpy(drawn(network, 6)).cuda()
    others = torch.from_numpy(drawn(network, 6, 1)).cuda()
    expected, expected_others = compiled(images), compiled(others)
    static = torch.zeros_like(images)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = compiled(static)
    again = torch.empty_like(out)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    for _ in range(20):
        static.copy_(images)
        graph.replay()
        beside = compiled(others, stream=side)
        compiled(static, out=again)
    torch.cuda.synchronize()
    torch.testing.assert_close(again, expected, rtol=0, atol=0)
    torch.testing.assert_close(out, expected, rtol=0, atol=0)
    torch.testing.assert_close(beside, expected_others, rtol=0, atol=0)


def test_a_graph_of_a_size_that_is_new(network, torch):
    """The first call of all may be one that is captured: memory is allocated meanwhile."""
    compiled = tilewright.compile(network, "cuda")
    images = torch.from_numpy(drawn(network, 33)).cuda()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = compiled(images)
    graph.replay()
    torch.cuda.synchronize()
    np.testing.assert_array_equal(out.cpu().numpy(), compiled(images).cpu().numpy())


def test_eight_threads(network, compiled, torch):
    """Threads that never used the GPU, each on a stream of its own, and on the default one."""
    batches = [drawn(network, 1 + 7 * index, index) for index in range(8)]
    tensors = [torch.from_numpy(each).cuda() for each in batches]
    expected = [compiled(each) for each in tensors]
    torch.cuda.synchronize()
    wrong: list[object] = []

    def call(index: int) -> None:
        try:
            stream = torch.cuda.Stream() if index % 2 else torch.cuda.default_stream()
            got = [compiled(tensors[index], stream=stream) for _ in range(50)]
            stream.synchronize()
            wrong.extend(index for each in got if not torch.equal(each, expected[index]))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=call, args=(index,)) for index in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []


def test_a_thread_that_never_used_the_gpu(network, compiled, torch):
    """And does nothing on it but this call: it has no context of its own."""
    images = torch.from_numpy(drawn(network, 3)).cuda()
    expected, out = compiled(images), torch.full((3, *network.output_shape), torch.nan).cuda()
    torch.cuda.synchronize()
    seen: list[object] = []

    def call() -> None:
        try:
            for _ in range(2):
                seen.append(compiled(images, out=out, stream=0))
        except Exception as error:
            seen.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert all(each is out for each in seen), seen
    assert torch.equal(out, expected)


def test_the_zoo_s_networks_can_be_compiled():
    for name in ("cifar10", "ece408"):
        bare = zoo.network(name)
        compiled = tilewright.compile(filled(bare), "cuda", precision="fp16", batch=4)
        assert compiled(np.zeros((4, *bare.input.shape), np.uint8)).shape == (4, 10)
