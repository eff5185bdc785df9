"""A GPU in the host's memory, with streams that are threads: what is launched is done later.

Its kernels are told by their arguments, as the driver gets them: addresses. They do something
simple that depends on every image, through whatever memory they are given, and take their time, so
that calls which share memory, or do not keep to their streams, come out wrong.
"""

from __future__ import annotations

import ctypes
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.cut import choose
from tilewright.fuse.cuda.run import FusedNetwork
from tilewright.fuse.cuda.stack import Stack
from tilewright.model.network import Network
from tilewright.rungs import find
from tilewright.runtime import DeviceFault, GpuKernel
from tilewright.runtime.device import CUDA
from tilewright.serving.at_once import ARGUMENTS
from tilewright.serving.cuda import CudaCompiled
from tilewright.serving.gpu_arrays import Facts, Looked
from tilewright.truth.trials import random_parameters

CONTEXT = 77
POINTER = ctypes.c_void_p
# The driver's own, as C knows them.
ASK = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, POINTER)
REPLAY = ASK
COPY = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, POINTER, ctypes.c_size_t, POINTER)
WAIT = CURRENT = ctypes.CFUNCTYPE(ctypes.c_int, POINTER)
MOVE = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, POINTER, POINTER)
LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, *[ctypes.c_uint] * 7, POINTER, POINTER, POINTER)
NAPS = random.Random(3)
# A kernel, and the values of its arguments.
Given = tuple[Callable[..., None], list[int]]


@dataclass
class Launch:
    name: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int
    stream: int
    arguments: tuple[int, ...]
    thread: int


class Stream:
    """Does one thing after the other; while it is captured, it only remembers them."""

    def __init__(self) -> None:
        self.captured: list[Callable[[], None]] | None = None
        self.work: queue.Queue[Callable[[], None]] = queue.Queue()
        threading.Thread(target=self._serve, daemon=True).start()

    def add(self, work: Callable[[], None]) -> None:
        if self.captured is None:
            self.work.put(work)
        else:
            self.captured.append(work)

    def _serve(self) -> None:
        while True:
            self.work.get()()
            self.work.task_done()


class FakeDriver:
    def __init__(self) -> None:
        self.functions: list[tuple[str, Callable[..., None]]] = []
        self.streams: dict[int, Stream] = {0: Stream()}
        self.launches: list[Launch] = []
        self.contexts = threading.local()  # of a thread: none until it is told
        self.error = 0
        # Functions with their arguments, one after the other; those to be replayed begin as theirs.
        self.all_series: dict[int, list[Given]] = {}
        self.graphs: dict[int, list[Given]] = {}
        self.replays: list[int] = []
        self.latest = -1  # stream that something was launched or replayed on
        self.moves: list[tuple[int, int]] = []  # graphs, and the places in them
        self.context = CONTEXT
        self.called = (
            CURRENT(self._current), ASK(self._ask), LAUNCH(self._launch), REPLAY(self._replay),
            MOVE(self._move), COPY(self._copy), COPY(self._copy), WAIT(self._wait),
        )  # fmt: skip
        (
            self.current, self.ask, self.launch, self.replay, self.move, self.send, self.fetch,
            self.waiting,
        ) = (int(ctypes.cast(each, POINTER).value or 0) for each in self.called)  # fmt: skip

    @contextmanager
    def inside(self) -> Iterator[None]:
        before, self.contexts.now = getattr(self.contexts, "now", None), CONTEXT
        yield
        self.contexts.now = before or CONTEXT

    def _launch(self, function: int, *rest: Any) -> int:
        """With the addresses of the kernel's arguments."""
        if wrong := self._wrong():
            return wrong
        *sizes, shared, stream, addresses, extra = rest
        assert extra is None
        name, work = self.functions[function - 1]
        given = self._arguments(work, addresses)
        on = self.latest = stream or 0
        self.launches.append(
            Launch(
                name, tuple(sizes[:3]), tuple(sizes[3:]), shared, on, tuple(given),
                threading.get_ident(),
            )
        )  # fmt: skip
        self.streams[on].add(lambda: work(*given))
        return 0

    def _current(self, found: int) -> int:
        POINTER.from_address(found).value = getattr(self.contexts, "now", None)
        return 0

    def _ask(self, stream: int | None, status: int) -> int:
        assert stream not in (None, 1)  # the driver refuses that while others are captured
        if wrong := self._wrong():
            return wrong
        ctypes.c_int.from_address(status).value = self.streams[stream].captured is not None
        return 0

    def _replay(self, graph: int, stream: int | None) -> int:
        if wrong := self._wrong():
            return wrong
        self.latest = stream or 0
        self.replays.append(self.latest)
        assert self.streams[stream or 0].captured is None
        for work, given in list(self.graphs[graph]):
            self.streams[stream or 0].add(partial(work, *given))
        return 0

    def _arguments(self, work: Callable[..., None], addresses: int) -> list[int]:
        pointers = ctypes.cast(addresses, ctypes.POINTER(POINTER))
        count = work.__code__.co_argcount
        given = [ctypes.cast(pointers[i], ctypes.POINTER(POINTER))[0] for i in range(count - 1)]
        given.append(ctypes.cast(pointers[count - 1], ctypes.POINTER(ctypes.c_int32))[0])
        return given

    def _taken(self, place: int) -> Given:
        """What the driver finds there of a launch."""
        function = ctypes.c_uint64.from_address(place).value
        arguments = ctypes.c_uint64.from_address(place + 8 * ARGUMENTS).value
        assert bytes((ctypes.c_char * 24).from_address(place + 48)) == bytes(24)
        work = self.functions[function - 1][1]
        return work, self._arguments(work, arguments)

    def series(self, launches: Sequence[int]) -> tuple[int, list[int]]:
        handle = 1 + len(self.all_series)
        self.all_series[handle] = [self._taken(place) for place in launches]
        return handle, [100 + number for number in range(len(launches))]

    def graph(self, series: int) -> int:
        handle = 1 + max(self.graphs, default=0)
        self.graphs[handle] = list(self.all_series[series])
        return handle

    def _move(self, graph: int, node: int, place: int) -> int:
        if wrong := self._wrong():
            return wrong
        self.moves.append((graph, node - 100))
        self.graphs[graph][node - 100] = self._taken(place)
        return 0

    def forget(self, series: int, graphs: Sequence[int]) -> None:
        for each in graphs:
            del self.graphs[each]
        del self.all_series[series]

    def _wrong(self) -> int:
        assert self.contexts.now == CONTEXT
        return self.error

    def fault(self, error: int) -> DeviceFault:
        return DeviceFault(f"error {error}")

    def _copy(self, target: int, source: int, size: int, stream: int | None) -> int:
        """To the GPU, and from it."""
        if wrong := self._wrong():
            return wrong
        self.streams[stream or 0].add(lambda: ctypes.memmove(target, source, size) and None)
        return 0

    def _wait(self, stream: int | None) -> int:
        self.wait(stream or 0)
        return self._wrong()

    def wait(self, stream: int) -> None:
        self.streams[stream].work.join()

    def gpu_of(self, address: int) -> int:
        return 0

    def wait_for_all(self) -> None:
        for stream in self.streams.values():
            stream.work.join()


def memory(address: int, count: int, dtype: str) -> np.ndarray:
    size = count * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype)


class FakeCard:
    """Of one network, whose kernels it stands in for."""

    index = 0
    capability = 80
    limits: Any = SimpleNamespace(processors=132)

    def __init__(self, network: Network) -> None:
        self.network, self.driver = network, FakeDriver()
        self.plans: list[Any] = []
        self.compiled: list[str] = []

    @contextmanager
    def preparing(self) -> Iterator[None]:
        yield

    def allocate(self, shape: Any, dtype: Any = np.float32) -> np.ndarray:
        return np.full(shape, 99, dtype)

    def upload(self, array: np.ndarray) -> np.ndarray:
        return array.copy()

    def pinned(self, size: int) -> np.ndarray:
        return np.full(size, 99, np.uint8)

    def address(self, buffer: np.ndarray) -> int:
        return int(buffer.ctypes.data)

    def function(self, kernel: GpuKernel) -> int:
        return int(kernel.handle)  # type: ignore[call-overload]

    def new_stream(self) -> int:
        handle = 1000 + len(self.driver.streams)
        self.driver.streams[handle] = Stream()
        return handle

    def compile_text(self, name: str, text: str, threads: int, shared_bytes: int) -> GpuKernel:
        self.compiled.append(name)
        source = "f4" if "const float* images" in text else "u1"
        self.driver.functions.append((name, self._work(name, source)))
        handle = len(self.driver.functions)
        return GpuKernel(name, (threads, 1, 1), handle, shared_bytes=shared_bytes)

    def _work(self, name: str, source: str) -> Callable[..., None]:
        shape, outputs = self.network.input.shape, int(np.prod(self.network.output_shape))
        values = int(np.prod(shape))

        def totals(x: int, count: int) -> np.ndarray:
            given = memory(x, count * values, source).reshape(count, values)
            return (given.astype(np.int64) * (1 + np.arange(values) % 7)).sum(1)

        def give(out: int, sums: np.ndarray) -> None:
            results = sums[:, None] % 10_007 + np.arange(outputs)
            memory(out, len(sums) * outputs, "f4")[:] = results.reshape(-1)

        def stack(x: int, out: int, weights: int, tables: int, items: int) -> None:
            sums = totals(x, items)
            time.sleep(NAPS.random() / 1000)
            if len(self.plans) == 1:
                give(out, sums)
            else:
                words = self.plans[0].result_words
                memory(out, items * words, "u4").reshape(items, words)[:, 0] = sums

        def dense(x: int, out: int, weights: int, parts: int, arrived: int, images: int) -> None:
            words = self.plans[0].result_words
            sums = memory(x, images * words, "u4").reshape(images, words)[:, 0].astype(np.int64)
            time.sleep(NAPS.random() / 1000)
            # What the first kernel left must still be there at the end, and be its own.
            sums = np.minimum(sums, memory(x, images * words, "u4").reshape(images, words)[:, 0])
            give(out, sums)

        first = len(self.plans) < 2 or name.endswith(tuple(self.plans[0].names[-1:]))
        return stack if first and isinstance(self.plans[0], Stack) else dense

    def expected(self, images: np.ndarray) -> np.ndarray:
        """What its kernels make of a batch."""
        flat = images.reshape(len(images), int(np.prod(images.shape[1:]))).astype(np.int64)
        sums = (flat * (1 + np.arange(flat.shape[1]) % 7)).sum(1)
        outputs = int(np.prod(self.network.output_shape))
        return (sums[:, None] % 10_007 + np.arange(outputs)).astype(np.float32)


class FakeTensor:
    """An array on the GPU that is none."""

    def __init__(self, array: np.ndarray, gpu: int = 0) -> None:
        self.array, self.gpu = array, gpu


class FakeKind:
    tell, gradients, adopts = 0, False, False

    def __init__(self) -> None:
        self.now = threading.local()
        self.empty_on: list[int | None] = []

    def look(self, tensor: FakeTensor) -> tuple[int, Facts]:
        array = tensor.array
        facts = (array.shape, array.dtype.name, array.flags.c_contiguous, tensor.gpu)
        return array.ctypes.data, facts

    def read(self, facts: Facts) -> Looked:
        return Looked(*facts)

    def adopt(self, tensor: FakeTensor, stream: int) -> FakeTensor:
        return tensor

    def empty(self, shape: Any, stream: int | None) -> tuple[FakeTensor, int]:
        self.empty_on.append(stream)
        made = FakeTensor(np.full(shape, np.nan, np.float32))
        return made, made.array.ctypes.data

    def maker(self, shape: Any) -> Callable[[], FakeTensor]:
        raise NotImplementedError("they tell nothing without Python")

    def on(self, stream: int | None, work: Callable[[], Any]) -> Any:
        raise NotImplementedError("they have no makers")

    def again(self, shape: Any) -> Callable[[int | None], tuple[FakeTensor, int]]:
        return partial(self.empty, shape)

    def current_stream(self) -> int:
        return getattr(self.now, "stream", 0)


def compiled(network: Network, batch: int | None = None) -> tuple[CudaCompiled, FakeCard]:
    """A network on the fake, and the fake."""
    ready = network.with_parameters(random_parameters(network, np.random.default_rng(0)))
    card = FakeCard(ready)
    choice = choose(ready.stages, ARITHMETICS["fp16"], card.capability)
    base: Any = card
    fused = FusedNetwork(base, "network", "fp16", ready.stages, ready.parameters, choice)
    card.plans = list(fused.plans)
    rung = find("network").at("fp16")
    made = CudaCompiled(ready, CUDA, rung, batch, card, fused)
    made.kinds[FakeTensor] = FakeKind()
    return made, card
