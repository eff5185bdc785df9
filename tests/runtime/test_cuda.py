"""How the CUDA runtime records, on a stand-in for CuPy: no GPU is needed to get this wrong."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from tests.test_trace import ticking
from tilewright.errors import TilewrightError
from tilewright.runtime import GpuKernel, cuda, nvrtc
from tilewright.runtime.cuda import TOUCHED_BYTES, CudaRuntime
from tilewright.runtime.device import CUDA, Device
from tilewright.runtime.multiprocessor import architecture
from tilewright.runtime.recorder import PENDING
from tilewright.runtime.staging import Staging
from tilewright.trace import Cost, Trace

COST = Cost(10, 4)


class Stream:
    """Work takes the clock's time, at once."""

    def __init__(self, clock):
        self.clock, self.ptr, self.waits = clock, 0, 0

    def synchronize(self):
        self.waits += 1


@pytest.fixture
def runtime():
    clock = ticking(1e-6)

    class Event:
        def record(self, stream):
            self.when = stream.clock()

        def synchronize(self):
            pass

    made = object.__new__(CudaRuntime)
    made.cupy = SimpleNamespace(
        cuda=SimpleNamespace(
            Event=Event,
            UnownedMemory=type(None),
            get_elapsed_time=lambda before, after: 1e3 * (after.when - before.when),
        )
    )
    made.kernels, made.sends, made.fetches = (Stream(clock) for _ in range(3))
    made.managed, made.pending, made.spare, made.index = False, [], [], 0
    made.trace = Trace(clock=clock, detailed=True)
    return made


def kernel(launched):
    def handle(grid, block, arguments, *shared, stream):
        launched.append((grid, block, arguments))

    return GpuKernel("direct_conv", (16, 16, 1), handle)


def buffer(size=8):
    array = SimpleNamespace(nbytes=size, data=SimpleNamespace(mem=object()), written=[])
    array.set = lambda given, stream: array.written.append(given)
    array.get = lambda stream: np.zeros(size, np.uint8)
    return array


def test_events_tell_launches_and_copies(runtime):
    launched = []
    with runtime.trace.layer(("conv1",)):
        runtime.write(buffer(), np.zeros(8, np.uint8))
        runtime.enqueue(kernel(launched), (4, 1, 1), [buffer(), 7], ("conv1", "relu1"), COST)
        runtime.download(buffer())
    runtime.synchronise()
    into, work, out = runtime.trace.of("kernel", "copy")
    assert (into.name, into.layers, into.bytes) == ("host to device", ("conv1",), 8)
    assert (work.name, work.layers, work.cost) == ("direct_conv", ("conv1", "relu1"), COST)
    assert (work.grid, work.block) == ((4, 1, 1), (16, 16, 1))
    assert (out.name, out.layers) == ("device to host", ("conv1",))
    ((grid, block, given),) = launched
    assert (grid, block, given[1]) == ((4, 1, 1), (16, 16, 1), np.int32(7))
    calls = {event.correlation: event.name for event in runtime.trace.of("api")}
    assert calls[work.correlation] == "kernel launch (CuPy)"
    assert calls[into.correlation] == calls[out.correlation] == "copy (CuPy)"
    assert "cudaStreamSynchronize" in calls.values()
    assert all(event.end > event.start for event in (into, work, out))


def test_events_do_not_pile_up(runtime):
    for _ in range(PENDING + 1):
        runtime.enqueue(kernel([]), (1, 1, 1), [], ("conv1",))
    assert len(runtime.pending) == 1
    assert len(runtime.trace.of("kernel")) == PENDING


def test_a_collector_is_told_the_layers_and_records_itself(runtime):
    told, collected = [], []

    @contextmanager
    def about(layers, cost=None):
        told.append((layers, cost))
        yield

    runtime.trace.collector = SimpleNamespace(about=about, collect=lambda: collected.append(1))
    with runtime.trace.layer(("conv1",)):
        runtime.write(buffer(), np.zeros(8, np.uint8))
        runtime.enqueue(kernel([]), (4, 1, 1), [], ("conv1", "relu1"), COST)
    runtime.synchronise()
    assert told == [(("conv1",), None), (("conv1", "relu1"), COST)]
    assert collected == [1]
    assert runtime.pending == []
    assert {event.kind for event in runtime.trace.events} == {"layer"}


def test_without_a_trace_nothing_is_recorded(runtime):
    runtime.trace = None
    launched = []
    runtime.enqueue(kernel(launched), (4, 1, 1), [], ("conv1",))
    runtime.synchronise()
    assert len(launched) == 1
    assert runtime.pending == []


def test_pages_to_touch_are_the_hosts_to_write(runtime):
    memory = np.full(TOUCHED_BYTES, 7, np.uint8)
    made = []

    def malloc_managed(size):
        made.append(size)
        return SimpleNamespace(ptr=memory.ctypes.data)

    runtime.cupy.cuda.malloc_managed = malloc_managed
    pages = runtime.shared_pages()
    assert made == [len(pages.addresses)] == [TOUCHED_BYTES]
    assert (memory == 7).all()
    pages.touch()
    assert not memory.any()


class Pointer:
    """Device memory as the library has it, which copies at once."""

    def __init__(self, memory, first=0):
        self.memory, self.first, self.mem = memory, first, object()

    def __add__(self, count):
        return Pointer(self.memory, self.first + count)

    def copy_from_host_async(self, place, size, stream):
        ctypes.memmove(self.memory.ctypes.data + self.first, place, size)

    def copy_to_host_async(self, place, size, stream):
        ctypes.memmove(place, self.memory.ctypes.data + self.first, size)


@pytest.mark.parametrize("pinned", [True, False])
def test_large_copies_go_through_pinned_pieces_unless_they_are_pinned(runtime, monkeypatch, pinned):
    monkeypatch.setattr(cuda, "LEAST_BYTES", 100)
    used = Staging([np.zeros(48, np.uint8) for _ in range(2)])
    monkeypatch.setattr(cuda, "_staging", lambda index: used)
    monkeypatch.setattr(CudaRuntime, "is_pinned", lambda self, array: pinned)
    array = np.arange(50, dtype=np.float32)
    memory = np.zeros(200, np.uint8)
    whole = buffer(200)
    whole.data, whole.shape, whole.dtype = Pointer(memory), (50,), np.float32
    runtime.index = 0
    runtime.write(whole, array)
    if pinned:
        assert whole.written == [array]
        return
    assert whole.written == []
    np.testing.assert_array_equal(memory.view(np.float32), array)
    np.testing.assert_array_equal(runtime.download(whole), array)
    runtime.synchronise()
    into, out = runtime.trace.of("copy")
    assert (into.name, into.bytes) == ("host to device", 200)
    assert (out.name, out.bytes) == ("device to host", 200)


def held(content):
    """A buffer of a device."""
    memory = np.ascontiguousarray(content)
    made = buffer(memory.nbytes)
    made.data, made.shape, made.dtype = Pointer(memory), memory.shape, memory.dtype
    return made


@pytest.mark.parametrize(
    "pinned, pages, recorded",
    [(True, 0, False), (False, 0, True), (False, 0, False), (False, 1, False)],
)
def test_nobody_waits_for_a_copy_that_the_driver_has_taken(
    runtime, monkeypatch, pinned, pages, recorded
):
    monkeypatch.setattr(CudaRuntime, "is_pinned", lambda self, array: pinned)
    monkeypatch.setattr(cuda, "reads_host_pages", lambda index: bool(pages))
    if not recorded:
        runtime.trace = None
    given, array = held(np.zeros(5, np.float32)), np.ones(5, np.float32)
    runtime.write(given, array)
    assert given.written == [array]
    assert runtime.kernels.waits == (pinned or bool(pages) or recorded)


@pytest.mark.parametrize("code", [0, 101])
def test_a_process_can_be_told_to_sleep_while_it_waits(monkeypatch, code):
    driver = pytest.importorskip("cuda.bindings.driver")
    told = []
    monkeypatch.setattr(driver, "cuInit", lambda flags: told.append("init"))
    result = (driver.CUresult(code),)
    answer = lambda index, flags: told.append((index, flags)) or result  # noqa: E731
    monkeypatch.setattr(driver, "cuDevicePrimaryCtxSetFlags", answer)
    with pytest.raises(TilewrightError, match="INVALID_DEVICE") if code else nullcontext():
        cuda.wait_asleep(Device("cuda", 1))
    assert told == ["init", (1, int(driver.CUctx_flags.CU_CTX_SCHED_BLOCKING_SYNC))]


@pytest.mark.parametrize("room", [256, 100])
def test_buffers_are_fetched_together_if_they_are_small(runtime, monkeypatch, room):
    monkeypatch.setattr(cuda, "TOGETHER_BYTES", room)
    monkeypatch.setattr(cuda, "_together", lambda index: np.zeros(room, np.uint8))
    monkeypatch.setattr(CudaRuntime, "_fetch", lambda self, buffer: buffer.data.memory)
    contents = [np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(70, dtype=np.uint8)]
    runtime.trace, runtime.index = None, 0
    fetched = runtime.download_together([held(each) for each in contents])
    for content, each in zip(contents, fetched, strict=True):
        np.testing.assert_array_equal(each, content)
        assert each.dtype == content.dtype
    assert runtime.kernels.waits == (room == 256)  # else each by itself


def test_a_device_is_held_back_by_a_kernel_of_its_own(runtime, monkeypatch):
    launched = []

    def function(index, compiled):
        return lambda *given, stream: launched.append((compiled, *given, stream))

    monkeypatch.setattr(cuda, "_function", function)
    monkeypatch.setattr(cuda.nvrtc, "compile_cubin", lambda *given: given)
    runtime.index, runtime.architecture, runtime.lead = 0, "sm_90", 0.0015
    runtime.enqueue(kernel([]), (4, 1, 1), [buffer()], ("conv1",), COST)
    (((name, text, architecture), grid, block, arguments, shared, stream),) = launched
    assert (name, architecture, text) == ("hold_back", "sm_90", cuda.HOLD_BACK)
    assert (grid, block, arguments, shared) == ((1, 1, 1), (1, 1, 1), (1_500_000,), 0)
    assert arguments[0].nbytes == 8
    assert stream is runtime.kernels
    runtime.synchronise()
    assert len(runtime.trace.of("kernel")) == 1


@pytest.mark.skipif(nvrtc.missing() is not None, reason=str(nvrtc.missing()))
def test_what_holds_a_device_back_compiles():
    compiled = nvrtc.compile_cubin("hold_back", cuda.HOLD_BACK, "sm_90")
    assert nvrtc.parameters(compiled) == "*"  # of 8 bytes


@pytest.mark.cuda
@pytest.mark.skipif(cuda.missing(CUDA) is not None, reason=str(cuda.missing(CUDA)))
def test_a_gpu_is_held_back():
    runtime = cuda.open_runtime(CUDA, "resident")
    before, after = runtime.new_event(), runtime.new_event()
    before.record(runtime.kernels)
    runtime.hold_back(0.005)
    after.record(runtime.kernels)
    runtime.synchronise()
    assert runtime.elapsed(before, after) >= 4.5  # ms


def test_what_is_compiled_ahead_is_what_is_asked_for(monkeypatch):
    """For the same architecture: else every generated kernel would be compiled twice."""
    ahead, asked = [], []
    runtime = object.__new__(cuda.CudaRuntime)
    runtime.index, runtime.architecture = 0, architecture(90)
    runtime.cupy = SimpleNamespace(
        cuda=SimpleNamespace(driver=SimpleNamespace(funcSetAttribute=lambda *given: None))
    )
    monkeypatch.setattr(cuda.nvrtc, "compile_ahead", ahead.extend)
    monkeypatch.setattr(cuda.nvrtc, "compile_cubin", lambda *given: asked.append(given))
    monkeypatch.setattr(cuda, "_function", lambda index, cubin: SimpleNamespace(ptr=0))
    runtime.compile_ahead([("k", "text")])
    runtime.compile_text("k", "text", 32, 0)
    assert ahead == asked == [("k", "text", "sm_90a")]
