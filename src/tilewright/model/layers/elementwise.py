"""Layers that make of every value another one at the same place: activations.

Such a kind is a single file. It gives, each in a line or a few:

- `function`: the value in NumPy's functions. Of float64 it is the truth, of float32 arrays the form
  of `im2col`, and Numba compiles it for single numbers, for `serial` and `threads`;
- `expression`: the value of `x` in C, with what the dialect has (`TW_EXP`, `TW_TANH`, `TW_MAX`,
  `TW_FMA`), for the GPU rungs and for whole-network kernels;
- `llvm`: the same for a vector, for `fused`;
- `torch` and `onnx`: what libraries call it;
- its accuracy: `ulp`, how many ulp its float32 forms may be off, and `steepest`, how much faster
  than its argument it can change;
- `keeps_order`: whether a larger argument never gives a smaller value. Of a maximum it is then
  taken once, behind it.

NaN stays NaN in all of them. A kind's settings are its fields; each is a float.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.model.layers.base import Example, Layer, Weights
from tilewright.model.layers.forms import Form, without
from tilewright.model.layers.rounding import SMALLEST_NORMAL, Array, Truth, flushed, ulp
from tilewright.precision import Precision

LARGEST_SETTING = 1e30
# Numbers at once, or for Numba one, in float64 or float32.
Values = NDArray[np.floating]


class Code(Protocol):
    """What a function under construction offers (`tilewright.fuse.cpu.code`). Values are names."""

    def constant(self, value: float) -> str: ...
    def binary(self, name: str, a: str, b: str) -> str: ...
    def fma(self, a: str, b: str, c: str) -> str: ...
    def sum(self, a: str, b: str) -> str: ...
    def maximum(self, a: str, b: str) -> str: ...
    def at_least(self, x: str, bound: float) -> str: ...
    def at_most(self, x: str, bound: float) -> str: ...
    def below_zero(self, x: str) -> str: ...
    def select(self, condition: str, a: str, b: str) -> str: ...
    def exp(self, x: str) -> str: ...
    def tanh(self, x: str) -> str: ...


@dataclass(frozen=True)
class Elementwise(Layer):
    """See above. `cycles` is what a vector of it takes on a CPU beside a load and a store."""

    cycles: ClassVar[int] = 0

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        gives: dict[str, tuple[Form, ...]] = {
            "function": ("truth", "loops", "numpy"), "expression": ("dialect", "cuda"),
            "llvm": ("llvm",), "torch": ("torch",), "onnx": ("onnx",),
        }  # fmt: skip
        cls.forms = frozenset(
            form
            for name, forms in gives.items()
            if getattr(cls, name) is not getattr(Elementwise, name)
            for form in forms
        )

    function: ClassVar[Callable[..., Values] | None] = None

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not abs(value) <= LARGEST_SETTING:
                raise TilewrightError(
                    f"{each.name} must be a number up to {LARGEST_SETTING:g} in size, "
                    f"not {value!r:.40}"
                )

    @property
    def keeps_order(self) -> bool:
        return False

    @property
    def steepest(self) -> float:
        return 1.0

    def expression(self) -> str:
        raise without(self, "dialect")

    def llvm(self, f: Code, x: str) -> str:
        raise without(self, "llvm")

    def ulp(self, precision: Precision) -> float:
        """0: exact."""
        return 0.0

    def smallest(self, precision: Precision) -> float:
        """How much results may be off that are too small for the relative error."""
        return SMALLEST_NORMAL

    @property
    def settings(self) -> tuple[np.float32, ...]:
        """The fields as `function` takes them in float32."""
        return tuple(np.float32(getattr(self, each.name)) for each in dataclasses.fields(self))

    @property
    def summary(self) -> str:
        return " ".join(f"{x.name} {getattr(self, x.name):g}" for x in dataclasses.fields(self))

    def truth(self, x: Array, error: Array, weights: Weights, precision: Precision) -> Truth:
        if self.function is None:
            raise without(self, "truth")
        with quiet():
            value = np.asarray(self.function(x, *map(float, self.settings)), np.float64)
        carried = self.steepest * error
        off = self.ulp(precision)
        if off == 0:
            return Truth(value, carried + flushed(value))
        sizes = np.minimum(np.abs(value) + carried, self.largest)
        return Truth(value, carried + off * ulp(sizes) + self.smallest(precision))

    @classmethod
    def examples(cls) -> list[Example]:
        return [((3, 5, 7), cls())]


def quiet() -> np.errstate:
    """A power may be infinite on the way to zero; infinity times zero is NaN, as it should be."""
    return np.errstate(over="ignore", invalid="ignore")


def literal(value: float) -> str:
    """A float in C, written so that its 32 bits come back."""
    return f"{np.float32(value):.9e}f"
