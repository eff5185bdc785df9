"""GELU: a value times the share of a normal distribution that is below it; exactly, and nearly."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tilewright.model.layers.base import Weights
from tilewright.model.layers.elementwise import Code, Elementwise, Values, literal
from tilewright.model.layers.onnx_node import BEFORE, INPUT, OnnxNode
from tilewright.model.layers.rounding import DIVIDE_ULP, EXP_ULP, Array, Truth
from tilewright.precision import UNIT, Precision

if TYPE_CHECKING:
    from torch import Tensor

HALF = math.sqrt(0.5)
# Beyond it the share is zero or one but for less than 2**-140.
FAR = 14.0
# Half of erfc(|x| / sqrt(2)) is exp(-x * x / 2) times a polynomial in t = 1 / (1 + NEAR * |x|), of
# which these are the coefficients, the highest power first and that of t last: fitted with a
# relative error of 2e-8 up to |x| = FAR.
NEAR = 0.3 * HALF
SHARE = (
    -0.064761817347495825, 0.24278342822452015, -0.25614292239700635, 0.27386459072422975,
    -0.0473286309327028, 0.10746447121040663, 0.07416920227888685, 0.085357669240452375,
    0.084593999204914715,
)  # fmt: skip
# Of the tanh that is nearly the share.
SLOPE, CUBE = math.sqrt(2 / math.pi), 0.044715


@dataclass(frozen=True)
class GELU(Elementwise):
    """x (1 + erf(x / sqrt(2))) / 2: below -0.75 it rises again, so that it does not keep order."""

    kind = type = "gelu"
    words = "each value times the normal distribution's share below it"
    steepest = 1.13
    fitting = (-30, 6)
    takes_huge = False  # twice as large may be on the way
    cycles = 30

    @staticmethod
    def function(x: Values) -> Values:
        size = np.abs(x)
        t = np.float32(1) / (np.float32(1) + np.float32(NEAR) * size)
        share = np.float32(SHARE[0]) * t + np.float32(SHARE[1])
        for each in SHARE[2:]:
            share = share * t + np.float32(each)
        half = share * t * np.exp(np.float32(-0.5) * x * x)
        return np.maximum(x, np.float32(0)) - np.minimum(size, np.float32(FAR)) * half

    def ulp(self, precision: Precision) -> float:
        return 2  # of products and a difference

    def smallest(self, precision: Precision) -> float:
        return 2.0**-120

    def truth(self, x: Array, error: Array, weights: Weights, precision: Precision) -> Truth:
        """As 1 + erf the share may be off by what erf may be in OpenCL, 16 ulp, and by its sum's
        rounding, however small it is."""
        exact = np.vectorize(math.erfc, [np.float64])
        below = np.minimum(np.abs(x), FAR) * exact(np.abs(x) * HALF) / 2
        value = np.maximum(x, 0) - below
        return _near(self, value, x, error, precision, 10)

    def expression(self) -> str:
        size = "(x < 0 ? -x : x)"
        far = f"(x > {literal(FAR)} || x < -{literal(FAR)} ? {literal(FAR)} : {size})"
        half = f"(0.5f * TW_ERFC({literal(HALF)} * {size}))"
        return f"TW_MAX(x, 0.0f) - {far} * {half}"

    def llvm(self, f: Code, x: str) -> str:
        size = f.maximum(x, f.binary("fsub", f.constant(0), x))
        t = f.binary("fdiv", f.constant(1), f.fma(f.constant(NEAR), size, f.constant(1)))
        share = f.constant(SHARE[0])
        for each in SHARE[1:]:
            share = f.fma(share, t, f.constant(each))
        power = f.exp(f.binary("fmul", f.binary("fmul", f.constant(-0.5), x), x))
        half = f.binary("fmul", f.binary("fmul", share, t), power)
        below = f.binary("fmul", f.at_most(size, FAR), half)
        return f.binary("fsub", f.at_least(x, 0), below)

    def torch(self, *parameters: Tensor) -> Callable[[Tensor], Tensor]:
        from torch.nn import functional

        return functional.gelu

    def onnx(self) -> tuple[OnnxNode, ...]:
        return (
            OnnxNode("Mul", constants=(HALF,)),
            OnnxNode("Erf"),
            OnnxNode("Add", constants=(1.0,)),
            OnnxNode("Mul", inputs=(INPUT, BEFORE)),
            OnnxNode("Mul", constants=(0.5,)),
        )


@dataclass(frozen=True)
class TanhGELU(Elementwise):
    """The same with (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 as the share: a logistic
    function."""

    kind = type = "gelu_tanh"
    words = "each value times nearly the normal distribution's share below it"
    steepest = 1.13
    fitting = (-30, 6)
    takes_huge = False  # twice as large may be on the way
    cycles = 25

    @staticmethod
    def function(x: Values) -> Values:
        cube = np.float32(CUBE) * x * x * x
        power = np.exp(np.float32(-2 * SLOPE) * (x + cube))
        return np.maximum(x, np.float32(-FAR)) / (np.float32(1) + power)

    def ulp(self, precision: Precision) -> float:
        """As of SiLU."""
        return 2 * (EXP_ULP + 1) + DIVIDE_ULP

    def smallest(self, precision: Precision) -> float:
        return 2.0**-115

    def truth(self, x: Array, error: Array, weights: Weights, precision: Precision) -> Truth:
        """As 1 + tanh the share may be off by what tanh may be, however small it is."""
        with np.errstate(over="ignore", invalid="ignore"):
            power = np.exp(-2 * SLOPE * (x + CUBE * x * x * x))
            value = np.maximum(x, -FAR) / (1 + power)
        off = precision.tanh_ulp + 5 + precision.sigmoid_error / UNIT
        return _near(self, value, x, error, precision, off)

    def expression(self) -> str:
        cube = f"{literal(CUBE)} * x * x * x"
        share = f"TW_SIGMOID({literal(2 * SLOPE)} * (x + {cube}))"
        return f"TW_MAX(x, -{literal(FAR)}) * {share}"

    def llvm(self, f: Code, x: str) -> str:
        square = f.binary("fmul", x, x)
        factor = f.fma(f.constant(-2 * SLOPE * CUBE), square, f.constant(-2 * SLOPE))
        power = f.exp(f.binary("fmul", factor, x))
        return f.binary("fdiv", f.at_least(x, -FAR), f.sum(f.constant(1), power))

    def torch(self, *parameters: Tensor) -> Callable[[Tensor], Tensor]:
        from torch.nn import functional

        return lambda x: functional.gelu(x, approximate="tanh")

    def onnx(self) -> tuple[OnnxNode, ...]:
        return (
            OnnxNode("Mul", inputs=(INPUT, INPUT)),
            OnnxNode("Mul", inputs=(INPUT, BEFORE)),
            OnnxNode("Mul", constants=(CUBE,)),
            OnnxNode("Add", inputs=(INPUT, BEFORE)),
            OnnxNode("Mul", constants=(SLOPE,)),
            OnnxNode("Tanh"),
            OnnxNode("Add", constants=(1.0,)),
            OnnxNode("Mul", inputs=(INPUT, BEFORE)),
            OnnxNode("Mul", constants=(0.5,)),
        )


def _near(
    layer: Elementwise, value: Array, x: Array, error: Array, precision: Precision, off: float
) -> Truth:
    """The bound of a product with a share that is off by so many roundoffs of one."""
    carried = layer.steepest * error
    sizes = (np.abs(value) + carried).astype(np.float32)
    share = off * UNIT * np.minimum(np.abs(x) + error, FAR)
    rounding = layer.ulp(precision) * np.spacing(sizes).astype(np.float64)
    return Truth(value, carried + rounding + share + layer.smallest(precision))
