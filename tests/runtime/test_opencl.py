"""The OpenCL runtime on whatever device is first here: PoCL at least."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import TilewrightError
from tilewright.runtime import device_number, opencl
from tilewright.runtime.dialect import DoesNotFit, Source
from tilewright.trace import Trace

REASON = opencl.missing("opencl")
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
    return opencl.OpenClRuntime("opencl")


@pytest.fixture(params=["plain", "managed"])
def runtime(request, plain):
    if request.param == "plain":
        return plain
    if not opencl.shares_memory(plain.device):
        pytest.skip("no memory shared with the host")
    return opencl.OpenClRuntime("opencl", managed=True)


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
    monkeypatch.setattr(opencl, "PENDING", 3)
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
        global_mem_size=10**10, max_compute_units=3,
    )  # fmt: skip
    found = opencl.limits(generous)
    assert (found.threads, found.shared_bytes, found.constant_bytes) == (1024, 49152, 65536)
    modest = replace_values(generous, max_work_group_size=256, local_mem_size=32768)
    assert (opencl.limits(modest).threads, opencl.limits(modest).shared_bytes) == (256, 32768)


def replace_values(facts, **values):
    return SimpleNamespace(**{**vars(facts), **values})


def test_names_of_devices():
    assert (device_number("opencl"), device_number("opencl:2")) == (0, 2)
    assert opencl.missing("opencl:99") == (
        f"there are {len(opencl.devices())} OpenCL devices, numbered from 0"
    )
    with pytest.raises(TilewrightError, match="device 'opencl:99': there are"):
        opencl.OpenClRuntime("opencl:99")
