"""Text that all generated kernels have: what the building blocks need to know, and constants."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import ClassVar, Protocol

from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.model.layers import Elementwise, Pixels
from tilewright.model.layers.elementwise import literal
from tilewright.runtime.nvrtc_worker import ORDERED

# What activations are written with, as in the dialect.
MATHEMATICS = {
    "TW_EXP": "expf", "TW_ERFC": "erfcf", "TW_LOG1P": "log1pf", "TW_TANH": "tanhf",
    "TW_SIGMOID": "sigmoid",
    "TW_MAX": "maximum", "TW_FMA": "fmaf",
}  # fmt: skip


# The same where 11 bits of a result are kept.
NEAR = {"TW_ERFC": "near_erfc", "TW_TANH": "near_tanh", "TW_SIGMOID": "near_sigmoid"}
# What tells the compiler to leave products in their order (`nvrtc_worker`).
IN_ORDER = f"{ORDERED} 1"


def head(arithmetic: Arithmetic, *texts: str) -> str:
    defines = {
        "TW_PER_WORD": arithmetic.per_word,
        "TW_TENSOR": int(arithmetic.tensor),
        "TW_PARTS": arithmetic.parts,
        "TW_TO_HALVES": 0,
        "TW_TO_OPERANDS": 1,
        "TW_TO_FLOATS": 2,
        "TW_POOL_MAX": 1,
        "TW_POOL_AVERAGE": 2,
        "TW_POOL_MAX_OF_EACH": 3,
        **MATHEMATICS,
        **(NEAR if arithmetic.precision.tanh_error else {}),
    }
    lines = [f"#define {name} {value}" for name, value in defines.items()]
    return "\n".join([*lines, *(text(each) for each in texts)])


@cache
def text(file: str) -> str:
    """A file of building blocks."""
    return (files("tilewright.fuse.cuda") / file).read_text()


class Printed(Protocol):
    """A step, or a part of one, with the names of the fields that are constants of its struct."""

    STRUCT: ClassVar[tuple[str, ...]]


def constants(step: Printed) -> dict[str, int | str]:
    found = {name.upper(): getattr(step, name) for name in step.STRUCT}
    return {name: each if isinstance(each, str) else int(each) for name, each in found.items()}


def struct(name: str, values: dict[str, int | str], *functions: str) -> str:
    """Constants, as the building blocks take them."""
    lines = [f"    static constexpr int {key} = {value};" for key, value in values.items()]
    return "\n".join([f"struct {name} {{", *lines, *(f"    {each}" for each in functions), "};"])


def activation(name: str, layers: tuple[Elementwise, ...]) -> str:
    """A function that applies activations one after the other."""
    steps = "".join(f"x = {layer.expression()}; " for layer in layers)
    return f"static __device__ __forceinline__ float {name}(float x) {{ {steps}return x; }}"


def value(pixels: Pixels | None) -> str:
    """What becomes of a pixel, of some channel, as it is read."""
    body = "return x;"
    if pixels:
        body = f"return fmaf(x, {literal(pixels.scales[0])}, {literal(pixels.shifts[0])});"
        if pixels.specials:
            scales, shifts = (
                ", ".join(map(literal, values)) for values in (pixels.scales, pixels.shifts)
            )
            body = (
                f"const float scales[] = {{{scales}}}, shifts[] = {{{shifts}}}; "
                "return fmaf(x, scales[c], shifts[c]);"
            )
    return f"static __device__ __forceinline__ float value(float x, int c) {{ {body} }}"
