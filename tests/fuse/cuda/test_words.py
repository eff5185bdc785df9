"""What kernels compute with: functions that are quick where 11 bits of a result are kept."""

from __future__ import annotations

import ctypes
import math
import re

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.fuse.cuda import on_host
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.emit import head, text
from tilewright.model.layers.sigmoid import Sigmoid
from tilewright.precision import NEAR_SIGMOID, NEAR_TANH, UNIT, Precision
from tilewright.runtime import cuda
from tilewright.runtime.cuda import CudaRuntime
from tilewright.runtime.device import CUDA

REASON = cuda.missing(CUDA)
# What the manual of PTX says that a power and a quotient may be off, of themselves.
POWER, QUOTIENT = 2.0**-22, 2.0**-23
SLOPE = np.float32(2.88539008)
NEAR_ERFC = 1.15e-6
HOST_FUNCTIONS = {"ex2": "two_to", "rcp": "inverse"}
ALL = """
extern "C" __global__ void values(const float* x, float* y, int count)
{
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i < count)
        y[i] = FUNCTION(x[i]);
}
"""


def arguments() -> NDArray[np.float32]:
    """Small and large ones, of both signs, and many where the tangent is neither."""
    small = np.logspace(-40, 38, 400_000)
    near = np.linspace(-12, 12, 1_000_001)
    return np.concatenate([small, -small, near]).astype(np.float32)


def logistic(x: NDArray[np.float32]) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x.astype(np.float64)))


@pytest.mark.parametrize(
    ("function", "error"), [("tanh", "tanh_error"), ("sigmoid", "sigmoid_error")]
)
def test_which_class_has_which(function: str, error: str) -> None:
    line = f"TW_{function.upper()} near_{function}"
    quick = {name for name, each in ARITHMETICS.items() if line in head(each)}
    assert quick == {n for n, each in ARITHMETICS.items() if getattr(each.precision, error) > 0}
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


def test_which_class_has_the_quick_error_function() -> None:
    quick = {name for name, each in ARITHMETICS.items() if "TW_ERFC near_erfc" in head(each)}
    assert quick == {"fp16", "tf32"}


@pytest.mark.skipif(on_host.missing() is not None, reason=str(on_host.missing()))
@pytest.mark.parametrize("power", [-POWER, POWER])
@pytest.mark.parametrize("quotient", [-QUOTIENT, QUOTIENT])
def test_the_quick_error_function_is_as_near_as_gelu_allows(power: float, quotient: float) -> None:
    x = np.abs(np.append(arguments(), [np.inf, np.nan]).astype(np.float32))
    y = run("near_erfc", x, power, quotient)
    assert y[-2] == 0 and np.isnan(y[-1])
    true = np.array([math.erfc(each) for each in x[:-1:7].tolist()])
    assert np.abs(y[:-1:7] - true).max() < NEAR_ERFC
    # GELU's share is half of it, and may be off by ten roundoffs of one.
    assert NEAR_ERFC / 2 < 10 * UNIT


@pytest.mark.skipif(on_host.missing() is not None, reason=str(on_host.missing()))
@pytest.mark.parametrize("power", [-POWER, POWER])
@pytest.mark.parametrize("quotient", [-QUOTIENT, QUOTIENT])
def test_the_quick_logistic_function_is_as_near_as_is_said(power: float, quotient: float) -> None:
    x = np.append(arguments(), [-np.inf, np.inf, np.nan]).astype(np.float32)
    y = run("near_sigmoid", x, power, quotient)
    assert y[-3] == 0 and abs(y[-2] - 1) <= QUOTIENT and np.isnan(y[-1])
    assert np.abs(y[:-3] - logistic(x[:-3])).max() < NEAR_SIGMOID


def run(
    function: str, x: NDArray[np.float32], power: float, quotient: float
) -> NDArray[np.float32]:
    """By the kernel's own text, with the two instructions as functions that are off as they may
    be."""
    own = text("words.cuh").split(f"float {function}(")[1].split("\n}\n")[0]
    own = f"static float {function}({own}\n}}\n"
    asm = r'asm\("(ex2|rcp)[^;"]*;" : "=f"\((\w+)\) : "f"\((.*?)\)\);'
    own = re.sub(asm, lambda each: f"{each[2]} = {HOST_FUNCTIONS[each[1]]}({each[3]});", own)
    assert "asm" not in own
    source = f"""
#include <cmath>
#define __device__
#define __forceinline__ inline
static float two_to(float x) {{ return std::exp2(double(x)) * (1 + {power}); }}
static float inverse(float x) {{ return 1 / double(x) * (1 + {quotient}); }}
{own}
extern "C" void run(const float* x, float* y, int count)
{{
    for (int i = 0; i < count; ++i)
        y[i] = {function}(x[i]);
}}
"""
    y = np.empty_like(x)
    pointers = (each.ctypes.data_as(ctypes.c_void_p) for each in (x, y))
    on_host.built(source).run(*pointers, x.size)
    return y


@pytest.mark.cuda
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.parametrize("precision", sorted(ARITHMETICS))
@pytest.mark.parametrize("function", ["TANH", "SIGMOID"])
def test_on_a_gpu(function: str, precision: str) -> None:
    runtime, arithmetic = CudaRuntime(CUDA), ARITHMETICS[precision]
    own = head(arithmetic, "words.cuh") + ALL.replace("FUNCTION", f"TW_{function}")
    kernel = runtime.compile_text("values", own, 256, 0)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)
    x = np.concatenate([special, arguments()])
    y = runtime.allocate(x.shape)
    runtime.enqueue(kernel, (-(-x.size // 256), 1, 1), (runtime.upload(x), y, x.size), ())
    found = runtime.download(y)
    assert np.isnan(found[4])
    numbers = np.delete(x, 4)
    true = np.tanh(numbers.astype(np.float64)) if function == "TANH" else logistic(numbers)
    assert abs(found[2] - 1) <= QUOTIENT and found[3] == true[3]
    off = np.abs(np.delete(found, 4) - true)
    relative, absolute = allowed(function, arithmetic.precision)
    ulp = np.spacing(np.abs(true).astype(np.float32))
    assert (off <= relative * ulp + absolute).all()


def allowed(function: str, precision: Precision) -> tuple[float, float]:
    """Ulps, and what a value may be off however small it is."""
    if function == "TANH":
        return precision.tanh_ulp, precision.tanh_error
    return Sigmoid().ulp(precision), Sigmoid().smallest(precision)
