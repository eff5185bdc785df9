from __future__ import annotations

import numpy as np
import pytest

from tilewright.measure import peak
from tilewright.rungs.gpu.design import source
from tilewright.runtime import nvrtc, opencl
from tilewright.runtime.device import CUDA, OPENCL
from tilewright.runtime.nvrtc import compile_cubin
from tilewright.runtime.opencl_runtime import OpenClRuntime

needs_opencl = pytest.mark.skipif(opencl.missing(OPENCL) is not None, reason="no OpenCL")


@needs_opencl
def test_rates_of_an_opencl_device(monkeypatch):
    monkeypatch.setattr(peak, "MOVED_BYTES", 2**24)
    assert 1e8 < peak.measured_bandwidth(OPENCL) < 1e14
    assert 1e8 < peak.measured_peak(OPENCL) < 1e15


@needs_opencl
def test_every_byte_is_moved():
    """Otherwise the bandwidth would be too good."""
    runtime = OpenClRuntime(OPENCL)
    values = np.arange(2 * 3 * 256 * 4, dtype=np.float32)
    kernel = source("bandwidth", "bandwidth.cl", (256, 1, 1), {"FROM": values.size // 2})
    given = runtime.upload(values)
    runtime.enqueue(runtime.compile(kernel), (3, 1, 1), [given], ())
    half = values[values.size // 2 :]
    np.testing.assert_array_equal(runtime.download(given), np.concatenate([half, half]))


def test_a_device_that_is_not_here_has_none(monkeypatch):
    monkeypatch.setattr(peak, "missing", lambda device: "not here")
    assert peak.measured_bandwidth(CUDA) is None
    assert peak.measured_peak(CUDA) is None


@pytest.mark.skipif(nvrtc.missing() is not None, reason=str(nvrtc.missing()))
def test_nvidias_compiler_leaves_the_copying_alone():
    kernel = source("bandwidth", "bandwidth.cl", (256, 1, 1), {"FROM": 1024})
    compiled = compile_cubin(kernel.name, kernel.complete, "sm_90")
    assert compiled.registers <= 32
    assert compiled.spilled_bytes == 0
