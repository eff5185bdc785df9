from __future__ import annotations

import pytest

from tests.profiling.made import profile
from tilewright.profiling.meaning import CALLS, of_call, of_kernel
from tilewright.profiling.tally import Row


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cuLaunchKernelEx", "hands a kernel"),
        ("cudaMemcpyAsync", "copies between"),
        ("cuMemcpyDtoHAsync_v2", "from device to host"),
        ("cudaMallocManaged", "host and device share"),
        ("cudaMalloc", "takes device memory"),
        ("clEnqueueReadBuffer", "from device to host"),
        ("somethingElse", "a call of the device's library"),
    ],
)
def test_calls(name, words):
    assert words in of_call(name)


def test_every_call_has_one_line():
    assert all(words and "\n" not in words and len(words) < 80 for words in CALLS.values())


@pytest.mark.parametrize(
    ("name", "layers", "words"),
    [
        ("direct_conv", ("conv1",), "conv1: a thread an output"),
        ("padded_pad", ("conv1",), "conv1: writes the input with a border"),
        ("layer_relu", ("relu1",), "relu1: what is negative becomes 0"),
        ("fused", ("conv1", "relu1"), "conv1, relu1: a thread an output"),
        ("stray", (), "belongs to no layer"),
    ],
)
def test_kernels(name, layers, words):
    assert of_kernel(profile(), Row("kernel", name, layers, 1, 1.0, 1.0, 1.0)).startswith(words)
