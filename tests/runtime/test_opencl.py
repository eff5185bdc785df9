"""The OpenCL runtime on whatever device is first here: PoCL at least."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import TilewrightError
from tilewright.runtime import DeviceFault, opencl, recorder
from tilewright.runtime.device import OPENCL, Device
from tilewright.runtime.dialect import DoesNotFit, Source
from tilewright.runtime.opencl_runtime import OpenClRuntime
from tilewright.trace import Trace

REASON = opencl.missing(OPENCL)
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))

DOUBLE = Source(
    "double_values",
    "TW_ENTRY TW_NAME(TW_GLOBAL const float *x, TW_GLOBAL float *out) {"
    " out[TW_BLOCK_X] = 2 * x[TW_BLOCK_X]; }",
    (1, 1, 1),
    (),
)


@pytest.fixture(scope="module")
def plain():
    return OpenClRuntime(OPENCL)


@pytest.fixture(params=["plain", "managed"])
def runtime(request, plain):
    if request.param == "plain":
        return plain
    if not opencl.shares_memory(plain.device):
        pytest.skip("no memory shared with the host")
    return OpenClRuntime(OPENCL, managed=True)


@given(
    rows=st.integers(1, 70), width=st.integers(1, 5), start=st.integers(-75, 75),
    stop=st.integers(-75, 75), target=st.integers(0, 70),
)  # fmt: skip
def test_slices_reshapes_and_copies_are_numpys(plain, rows, width, start, stop, target):
    values = np.arange(rows * width, dtype=np.float32).reshape(rows, width)
    array = plain.upload(values)
    piece, expected = array[start:stop], values[start:stop]
    assert piece.shape == expected.shape
    assert piece.nbytes == expected.nbytes
    assert len(piece) == len(expected)
    np.testing.assert_array_equal(plain.download(piece), expected)
    flat = array.reshape(rows * width)[1:]
    np.testing.assert_array_equal(plain.download(flat), values.ravel()[1:])
    if len(expected) and target + len(expected) <= rows:
        other = plain.upload(-values)
        other[target : target + len(expected)] = piece
        copied = -values
        copied[target : target + len(expected)] = expected
        np.testing.assert_array_equal(plain.download(other), copied)


def test_shapes_that_do_not_match_are_refused(plain):
    array = plain.upload(np.zeros((4, 3), np.float32))
    with pytest.raises(AssertionError):
        array[0:2] = array[0:3]
    with pytest.raises(AssertionError):
        array.reshape(5, 5)


@pytest.mark.parametrize("first", [0, 1, 3, 64])
def test_kernels_start_anywhere_in_a_buffer(runtime, first):
    """OpenCL has pointers to multiples of some bytes only: the rest is copied out and back."""
    values = np.arange(100, dtype=np.float32)
    x, out = runtime.upload(values), runtime.upload(np.full(100, -1, np.float32))
    kernel = runtime.compile(DOUBLE)
    runtime.enqueue(kernel, (5, 1, 1), [x[first : first + 5], out[first : first + 5]], ())
    expected = np.full(100, -1, np.float32)
    expected[first : first + 5] = 2 * values[first : first + 5]
    np.testing.assert_array_equal(runtime.download(out), expected)
    np.testing.assert_array_equal(runtime.download(x), values)


def test_both_ends_at_once_in_one_buffer(plain):
    """A kernel may read one unaligned piece of a buffer and write another."""
    both = plain.upload(np.arange(20, dtype=np.float32))
    plain.enqueue(plain.compile(DOUBLE), (3, 1, 1), [both[1:4], both[11:14]], ())
    expected = np.arange(20, dtype=np.float32)
    expected[11:14] = 2 * expected[1:4]
    np.testing.assert_array_equal(plain.download(both), expected)


def test_constant_memory_belongs_to_a_kernel(runtime):
    text = (
        "TW_ENTRY TW_NAME(TW_GLOBAL float *out TW_CONSTANT_ARGUMENT) {"
        " out[TW_BLOCK_X] = tw_constant[TW_BLOCK_X]; }"
    )
    source = Source("constants", text, (1, 1, 1), (), constant_floats=4)
    first, second = runtime.compile(source), runtime.compile(source)
    for kernel, value in ((first, 1), (second, 2)):
        runtime.write(kernel.constant, np.full(4, value, np.float32))
    for kernel, value in ((first, 1), (second, 2)):
        out = runtime.upload(np.zeros(4, np.float32))
        runtime.enqueue(kernel, (4, 1, 1), [out], ())
        assert runtime.download(out).tolist() == [value] * 4


def test_what_was_written_may_change_afterwards(runtime):
    values = np.arange(1000, dtype=np.float32)
    buffer = runtime.upload(values)
    values[:] = -1
    assert runtime.download(buffer)[999] == 999


def test_nothing_is_a_size_too(plain):
    empty = plain.upload(np.zeros((0, 3), np.float32))
    assert plain.download(empty).shape == (0, 3)


def test_a_trace_has_copies_and_kernels_in_order(plain):
    plain.trace = trace = Trace()
    try:
        x = plain.upload(np.ones(8, np.float32))
        out = plain.allocate((8,))
        plain.enqueue(plain.compile(DOUBLE), (8, 1, 1), [x, out], ("conv1",))
        assert plain.download(out).tolist() == [2.0] * 8
        plain.synchronise()
    finally:
        plain.trace = None
    kinds = [(event.kind, event.name, event.layers, event.bytes) for event in trace.events]
    assert kinds == [
        ("copy", "host to device", (), 32),
        ("kernel", "double_values", ("conv1",), 0),
        ("copy", "device to host", (), 32),
    ]
    starts = [event.start for event in trace.events]
    assert starts == sorted(starts)
    assert all(event.end >= event.start for event in trace.events)


def test_pending_events_are_read_before_they_pile_up(plain, monkeypatch):
    monkeypatch.setattr(recorder, "PENDING", 3)
    plain.trace = trace = Trace()
    try:
        for _ in range(7):
            plain.upload(np.ones(1, np.float32))
        assert len(trace.events) == 6
    finally:
        plain.synchronise()
        plain.trace = None
    assert len(trace.events) == 7


def test_lanes_wait_for_marks(plain):
    host, back = plain.pinned((4,), np.float32), plain.pinned((4,), np.float32)
    host[:] = [1, 2, 3, 4]
    x, out = plain.allocate((4,)), plain.allocate((4,))
    plain.hold(plain.send(x, host, None))
    plain.enqueue(plain.compile(DOUBLE), (4, 1, 1), [x, out], ())
    plain.wait(plain.fetch(back, out, plain.mark()))
    assert back.tolist() == [2, 4, 6, 8]


def test_more_than_the_device_gives_at_once_is_refused(plain):
    most = plain.device.max_mem_alloc_size
    with pytest.raises(TilewrightError, match="use a smaller --batch, or --memory streamed"):
        plain.allocate((most // 4 + 1,))


def test_a_kernel_that_does_not_fit_is_not_built(plain):
    source = replace(DOUBLE, text="nonsense", shared_floats=10**6)
    with pytest.raises(DoesNotFit, match="double_values needs shared memory of 4,000,000 bytes"):
        plain.compile(source)


def test_what_is_not_the_dialect_is_one_line(plain, capfd):
    with pytest.raises(TilewrightError, match="OpenCL compiler") as error:
        plain.compile(replace(DOUBLE, text="TW_ENTRY TW_NAME(void) { nonsense; }"))
    assert "\n" not in str(error.value)


def test_limits_are_what_every_gpu_has():
    generous = SimpleNamespace(
        max_work_group_size=4096, local_mem_size=10**6, max_constant_buffer_size=10**6,
        global_mem_size=10**10, max_compute_units=3, max_work_item_sizes=[4096, 4096, 4096],
    )  # fmt: skip
    found = opencl.limits(generous)
    assert found.block == (1024, 1024, 64)
    assert (found.threads, found.shared_bytes, found.constant_bytes) == (1024, 49152, 65536)
    modest = replace_values(
        generous, max_work_group_size=256, local_mem_size=32768, max_work_item_sizes=[256, 256, 1]
    )
    assert opencl.limits(modest).block == (256, 256, 1)
    assert (opencl.limits(modest).threads, opencl.limits(modest).shared_bytes) == (256, 32768)


def test_a_kernel_that_the_compiler_makes_too_large(plain, monkeypatch):
    """A compiler may leave a kernel fewer threads than the device has, for want of registers."""

    def found(kernel, what, device):
        sizes = plain.cl.kernel_work_group_info
        return {sizes.WORK_GROUP_SIZE: 7, sizes.LOCAL_MEM_SIZE: 0}[what]

    monkeypatch.setattr(plain.cl.Kernel, "get_work_group_info", found)
    words = "double_values, as compiled for .*, needs 8 threads in a block and can have 7"
    with pytest.raises(DoesNotFit, match=words):
        plain.compile(replace(DOUBLE, block=(8, 1, 1)))


def test_a_compiler_that_does_not_say_what_is_written(plain, monkeypatch):
    class NotAvailable(plain.cl.LogicError):
        code = plain.cl.status_code.KERNEL_ARG_INFO_NOT_AVAILABLE

    def refuse(kernel, argument, what):
        raise NotAvailable("clGetKernelArgInfo failed: KERNEL_ARG_INFO_NOT_AVAILABLE")

    assert plain.compile(DOUBLE).handle.writes == (False, True)
    monkeypatch.setattr(plain.cl.Kernel, "get_arg_info", refuse)
    assert plain.compile(DOUBLE).handle.writes == (True, True)


def test_nothing_moves_when_there_is_nothing(plain):
    array = plain.upload(np.arange(4, dtype=np.float32))
    array[2:2] = array[0:0]
    assert plain.download(array).tolist() == [0, 1, 2, 3]


def test_what_was_pinned_is_known(plain):
    pinned = plain.pinned((4, 3), np.uint8)
    assert pinned.shape == (4, 3)
    pinned[:] = 7
    for view in (pinned, pinned[1:], pinned.reshape(12)[2:5]):
        assert plain.is_pinned(view)
        assert OpenClRuntime(OPENCL).is_pinned(view)  # it is the device's, not ours
    assert not plain.is_pinned(pinned.copy())
    assert not plain.is_pinned(np.zeros(3))
    assert plain.pinned((0, 3), np.float32).shape == (0, 3)
    kept, before = pinned[2:], len(plain.handed_out)
    del pinned, view
    assert plain.is_pinned(kept)
    del kept
    assert len(plain.handed_out) == before - 1


def test_memory_that_cannot_be_pinned_is_one_line(plain):
    with pytest.raises(TilewrightError, match=r"opencl pins no .* bytes .*use fewer --images"):
        plain.pinned((2**45,), np.uint8)


CALLS = {
    "enqueue_nd_range_kernel": "opencl \\(.*\\), kernel double_values: the driver's words",
    "enqueue_copy": "opencl \\(.*\\): the driver's words",
    "enqueue_marker": "opencl \\(.*\\): the driver's words",
    "enqueue_barrier": "opencl \\(.*\\): the driver's words",
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("kind", ["LogicError", "RuntimeError", "MemoryError"])
def test_what_a_driver_refuses_is_one_line(name, kind, plain, monkeypatch):
    kernel, x, out = plain.compile(DOUBLE), plain.allocate((2,)), plain.allocate((2,))
    host = np.zeros(2, np.float32)

    def refuse(*given, **options):
        raise getattr(plain.cl, kind)("the driver's\n  words")

    monkeypatch.setattr(plain.cl, name, refuse)
    words = "has no memory left: use a smaller" if kind == "MemoryError" else CALLS[name]
    with pytest.raises(TilewrightError, match=words) as error:
        plain.write(x, host)
        plain.enqueue(kernel, (2, 1, 1), [x, out], ())
        plain.hold(plain.mark())
    assert "\n" not in str(error.value)
    assert isinstance(error.value, DeviceFault) == (kind != "MemoryError")


def test_what_a_device_did_wrong_is_seen_when_it_is_waited_for(plain, monkeypatch):
    class Broken:
        def wait(self):
            raise plain.cl.RuntimeError("clWaitForEvents failed: OUT_OF_RESOURCES")

        finish = wait

    with pytest.raises(DeviceFault, match=r"opencl .*: clWaitForEvents failed: OUT_OF_RESOURCES"):
        plain.wait(Broken())
    monkeypatch.setattr(plain, "kernels", Broken())
    with pytest.raises(DeviceFault, match="OUT_OF_RESOURCES"):
        plain.synchronise()


def test_a_device_from_before_shared_memory(plain):
    class Old:
        @property
        def svm_capabilities(self):
            raise plain.cl.LogicError("clGetDeviceInfo failed: INVALID_VALUE")

    assert opencl.shares_memory(Old()) is False


def test_a_platform_without_devices_hides_no_other(plain, monkeypatch):
    def absent():
        raise plain.cl.RuntimeError("clGetDeviceIDs failed: DEVICE_NOT_AVAILABLE")

    platforms = [SimpleNamespace(get_devices=absent), *plain.cl.get_platforms()]
    monkeypatch.setattr(plain.cl, "get_platforms", lambda: platforms)
    assert opencl.devices.__wrapped__() == opencl.devices()


def test_a_simulator_is_used_only_when_it_is_named(monkeypatch):
    platform = SimpleNamespace(name="Oclgrind")
    simulator = SimpleNamespace(name="Oclgrind Simulator", platform=platform)
    monkeypatch.setattr(opencl, "devices", lambda: [simulator])
    monkeypatch.setattr(opencl, "is_installed", lambda: True)
    reason = opencl.missing(OPENCL)
    assert reason.startswith("no OpenCL device found but the simulator Oclgrind Simulator")
    assert reason.endswith("PoCL is installed and would run on the CPU, but does not start here")
    assert opencl.missing(Device("opencl", 0)) is None


def replace_values(facts, **values):
    return SimpleNamespace(**{**vars(facts), **values})


def test_names_of_devices():
    assert opencl.missing(Device("opencl", 99)) == (
        f"there are {len(opencl.devices())} OpenCL devices, numbered from 0"
    )
    with pytest.raises(TilewrightError, match="device 'opencl:99': there are"):
        OpenClRuntime(Device("opencl", 99))
