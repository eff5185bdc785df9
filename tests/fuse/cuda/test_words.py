"""What kernels compute with: the tangent that is quick where 11 bits of it are kept."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.emit import head
from tilewright.precision import NEAR_TANH
from tilewright.runtime import cuda
from tilewright.runtime.cuda import CudaRuntime
from tilewright.runtime.device import CUDA

REASON = cuda.missing(CUDA)
# What the manual of PTX says that a power and a quotient may be off, of themselves.
POWER, QUOTIENT = 2.0**-22, 2.0**-23
SLOPE = np.float32(2.88539008)
ALL = """
extern "C" __global__ void tangents(const float* x, float* y, int count)
{
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i < count)
        y[i] = TW_TANH(x[i]);
}
"""


def arguments() -> NDArray[np.float32]:
    """Small and large ones, of both signs, and many where the tangent is neither."""
    small = np.logspace(-40, 38, 400_000)
    near = np.linspace(-12, 12, 1_000_001)
    return np.concatenate([small, -small, near]).astype(np.float32)


def test_which_class_has_which() -> None:
    quick = {name for name, each in ARITHMETICS.items() if "TW_TANH near_tanh" in head(each)}
    assert quick == {name for name, each in ARITHMETICS.items() if each.precision.tanh_error > 0}
    assert quick == {"fp16", "tf32"}


@pytest.mark.parametrize("power", [-POWER, POWER])
@pytest.mark.parametrize("quotient", [-QUOTIENT, QUOTIENT])
def test_worst_that_its_instructions_may_do(power: float, quotient: float) -> None:
    x = arguments()
    with np.errstate(over="ignore", under="ignore"):
        powers = np.exp2((x * SLOPE).astype(np.float64)) * (1 + power)
        sums = (powers + 1).astype(np.float32).astype(np.float64)
    found = (1 - 2 * (1 + quotient) / sums).astype(np.float32)
    assert np.abs(found - np.tanh(x.astype(np.float64))).max() < NEAR_TANH


@pytest.mark.cuda
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.parametrize("precision", sorted(ARITHMETICS))
def test_on_a_gpu(precision: str) -> None:
    runtime, arithmetic = CudaRuntime(CUDA), ARITHMETICS[precision]
    kernel = runtime.compile_text("tangents", head(arithmetic, "words.cuh") + ALL, 256, 0)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)
    x = np.concatenate([special, arguments()])
    y = runtime.allocate(x.shape)
    runtime.enqueue(kernel, (-(-x.size // 256), 1, 1), (runtime.upload(x), y, x.size), ())
    found = runtime.download(y)
    assert np.array_equal(found[2:5], [1.0, -1.0, np.nan], equal_nan=True)
    true = np.tanh(np.delete(x, 4).astype(np.float64))
    off = np.abs(np.delete(found, 4) - true)
    precise = arithmetic.precision
    ulp = np.spacing(np.abs(true).astype(np.float32))
    assert (off <= precise.tanh_ulp * ulp + precise.tanh_error).all()
