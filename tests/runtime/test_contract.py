"""The contract of the runtimes: what their buffers and they themselves can do."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.runtime import GpuRuntime, are_pixels, opencl
from tilewright.runtime.cpu import CpuRuntime
from tilewright.runtime.device import OPENCL
from tilewright.runtime.opencl_runtime import OpenClRuntime


def runtimes():
    yield CpuRuntime()
    if opencl.missing(OPENCL) is None:
        yield OpenClRuntime(OPENCL)
        if opencl.shares_memory(opencl.devices()[0]):
            yield OpenClRuntime(OPENCL, managed=True)


def test_buffers_do_what_everybody_relies_on():
    for runtime in runtimes():
        values = runtime.upload(np.arange(24, dtype=np.float32).reshape(4, 6))
        other = runtime.allocate((2, 2, 3))
        other[:] = values[1:3].reshape(2, 2, 3)
        assert (other.shape, len(other), other.nbytes) == ((2, 2, 3), 2, 48)
        assert runtime.download(other).ravel().tolist() == list(range(6, 18))
        assert not are_pixels(values)
        assert are_pixels(runtime.upload(np.zeros((4, 6), np.uint8)))


def test_pixels_are_told_from_values_in_pytorch_too():
    torch = pytest.importorskip("torch")
    assert are_pixels(torch.zeros(3, dtype=torch.uint8))
    assert not are_pixels(torch.zeros(3))


def test_only_devices_with_memory_of_their_own_are_driven_like_gpus():
    assert [isinstance(runtime, GpuRuntime) for runtime in runtimes()] == [
        not isinstance(runtime, CpuRuntime) for runtime in runtimes()
    ]


@pytest.mark.skipif(opencl.missing(OPENCL) is not None, reason="no OpenCL")
def test_a_buffer_of_another_kind_is_refused():
    runtime = OpenClRuntime(OPENCL)
    with pytest.raises(AssertionError, match="ndarray"):
        runtime.write(np.zeros(3, np.float32), np.zeros(3, np.float32))
