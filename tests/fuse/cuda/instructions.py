"""What single instructions of the building blocks make of numbers.

What becomes of NaN and of numbers too large for a half depends on them: they are read from the text
of the building blocks.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.emit import MATHEMATICS, activation, text
from tilewright.model.layers import Elementwise

Array = NDArray[Any]
FLOAT = np.float32
BLOCKS = "words", "sums", "pictures", "branches", "pools"


def values(words: Array, per_word: int) -> Array:
    """Words as numbers; the last axis grows by what a word holds."""
    kind = np.float16 if per_word == 2 else np.float32
    return np.ascontiguousarray(words, np.uint32).view(kind).astype(FLOAT)


@cache
def body(function: str) -> str:
    """What a building block does, as text."""
    pattern = rf"^__device__[^\n]* {function}\([^{{]*\{{(.*?)(\n\}}|; \}})$"
    found = re.search(pattern, "".join(text(f"{each}.cuh") for each in BLOCKS), re.M | re.S)
    assert found, f"there is no {function}"
    return found[1]


def maximum(function: str) -> Any:
    """The maximum that a building block takes: C's, which prefers any number to NaN, or PTX's."""
    if "fmaxf(" in body(function):
        return np.fmax
    assert "maximum(" in body(function)
    assert "max.NaN.f32" in body("maximum")
    return np.maximum


def rounded_halves(x: Array) -> Array:
    """As `pack` makes them of floats: what is too large is infinity, and that may become NaN."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = x.astype(np.float16)
        if "fma.rn.f16x2" in body("pack"):  # times zero, plus itself
            found = found * np.float16(0) + found
    return found


def halves(low: Array, high: Array) -> Array:
    pair = rounded_halves(np.stack([low, high], -1))
    return np.ascontiguousarray(pair).view(np.uint32)[..., 0]


def activate(x: Array, layers: tuple[Elementwise, ...]) -> Array:
    """Of every value what the C function does that a kernel has for these layers."""
    x = np.ascontiguousarray(x, FLOAT)
    if not layers:
        return x
    found = np.empty_like(x)
    pointer = ctypes.POINTER(ctypes.c_float)
    _compiled(activation("each", layers))(
        x.ctypes.data_as(pointer), found.ctypes.data_as(pointer), ctypes.c_long(x.size)
    )
    return found


@cache
def _compiled(function: str) -> Any:
    """A function of a kernel, compiled by this machine's C compiler, over an array."""
    larger = "fmaxf(a, b)" if "fmaxf(" in body("maximum") else "a > b || a != a ? a : b"
    lines = [
        "#include <math.h>",
        "#define __device__",
        "#define __forceinline__ inline",
        *(f"#define {name} {value}" for name, value in MATHEMATICS.items()),
        f"static float maximum(float a, float b) {{ return {larger}; }}",
        "static float sigmoid(float x) { return 1 / (1 + expf(-x)); }",
        function,
        "void all(const float* x, float* out, long count) {",
        "    for (long i = 0; i < count; ++i) out[i] = each(x[i]);",
        "}",
    ]
    return _library(lines)


def _library(lines: list[str]) -> Any:
    """The function `all` of some C."""
    with TemporaryDirectory() as folder:
        library = Path(folder) / "all.so"
        command = ["gcc", "-x", "c", "-O1", "-shared", "-fPIC", "-", "-o", str(library), "-lm"]
        subprocess.run(command, input="\n".join(lines), text=True, check=True)
        return ctypes.CDLL(str(library)).all


def probabilities(scores: Array) -> Array:
    """Of rows of scores."""
    with np.errstate(invalid="ignore"):
        most = maximum("softmax").reduce(scores, -1, keepdims=True)
        powers = np.exp(scores - maximum("softmax")(most, np.finfo(FLOAT).min))
        return (powers / powers.sum(-1, keepdims=True)).astype(FLOAT)


def products(rows: Array, columns: Array, arithmetic: Arithmetic) -> Array:
    """Sums of products of rows and columns, without roundings on the way; of floats in parts those
    products that `multiply` has."""
    if arithmetic.parts == 1:
        return rows @ columns
    of_rows, of_columns = parts(rows), parts(columns)
    return np.sum([of_rows[one] @ of_columns[other] for one, other in multiplied("multiply")], 0)


@cache
def multiplied(function: str) -> list[tuple[str, str]]:
    """The parts of rows and of columns whose products a building block adds up."""
    return re.findall(r"_parts\(c, (\w+)\(a0\).* (\w+)\(b(?:\.x)?\)", body(function))


def parts(floats: Array) -> dict[str, Array]:
    """What the tensor cores read of the two operands that a float is split into."""
    whole = np.ascontiguousarray(floats, FLOAT)
    found = {"high": np.empty_like(whole, np.uint32), "low": np.empty_like(whole, np.uint32)}
    places = (ctypes.c_void_p(each.ctypes.data) for each in (whole, *found.values()))
    _splitting()(*places, ctypes.c_long(whole.size))
    return {
        name: (words & np.uint32(0xFFFFE000)).view(FLOAT).astype(np.float64)
        for name, words in found.items()
    }


@cache
def _splitting() -> Any:
    """The functions of the text, compiled by this machine's C compiler."""
    return _library(
        [
            "typedef unsigned word;",
            "typedef union { word bits; float value; } both;",
            "static float __uint_as_float(word x) { both y = {.bits = x}; return y.value; }",
            "static word __float_as_uint(float x) { both y = {.value = x}; return y.bits; }",
            *(f"static word {each}(word value) {{ {body(each)}; }}" for each in ("high", "low")),
            "void all(const word* x, word* first, word* rest, long count) {",
            "    for (long i = 0; i < count; ++i) first[i] = high(x[i]), rest[i] = low(x[i]);",
            "}",
        ]
    )


def operand_columns(block: Array, rows: int, columns: int, arithmetic: Arithmetic) -> Array:
    """Packed weights as (row of taps, value of a step, filter), by the layout of lanes."""
    if not arithmetic.tensor:
        size = len(block) // (rows * columns * 8)
        lanes = block.view(FLOAT).reshape(rows, columns, 4, size, 2)
        plain = np.zeros((rows, size, columns * 8), FLOAT)
        for t in range(4):
            for part in range(2):
                plain[:, :, 2 * t + part :: 8] = lanes[:, :, t, :, part].transpose(0, 2, 1)
        return plain
    registers = len(block) // (rows * columns * 32)
    lanes = block.reshape(rows, columns, 32, registers)
    words = np.zeros((rows, 4 * registers, columns * 8), np.uint32)
    for lane in range(32):
        g, t = divmod(lane, 4)
        for register in range(registers):
            words[:, t + 4 * register, g::8] = lanes[:, :, lane, register]
    # Words hold neighbouring values of the same filter.
    spread = values(np.ascontiguousarray(words.transpose(0, 2, 1)), arithmetic.per_word)
    return spread.transpose(0, 2, 1)
