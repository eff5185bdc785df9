"""A kernel in the dialect: its text, and everything a compiler must know, as plain data.

The same text is CUDA C++ and OpenCL C; `prelude.h` covers the differences, docs/dialect.md has the
rules. Shapes are compile-time constants, so each layer has kernels of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Literal, NamedTuple

from tilewright.errors import TilewrightError

Block = tuple[int, int, int]
Grid = tuple[int, int, int]
# What a kernel is written in: this dialect, or the language of one kind of device as it is.
Language = Literal["dialect", "cuda", "opencl"]

# What every GPU of the last decade has: designs that respect it run everywhere. PoCL would accept
# larger shared and constant arrays, and the kernel would then be refused on a GPU.
USUAL_SHARED_BYTES = 48 * 1024
USUAL_CONSTANT_BYTES = 64 * 1024
USUAL_THREADS = 1024
USUAL_BLOCK = (1024, 1024, 64)
LARGEST_GRID = (2**31 - 1, 65_535, 65_535)  # CUDA's limits along x, y and z
LARGEST_GRID_Z = LARGEST_GRID[2]


class DoesNotFit(TilewrightError):
    """A kernel needs more than the device has."""


@dataclass(frozen=True)
class Limits:
    """What a device gives a kernel."""

    threads: int  # of a block
    shared_bytes: int  # of a block, declared in the source
    constant_bytes: int
    memory_bytes: int
    processors: int  # multiprocessors, compute units
    block: Block = USUAL_BLOCK  # threads of a block along x, y and z


class Part(NamedTuple):
    """From `line` of a text on, it is of a file (empty: the user's own) from that one's `first`."""

    line: int
    file: str
    first: int


@dataclass(frozen=True)
class Source:
    """One kernel. `name` is its entry point and what profiles show.

    `shared_floats` is what its shared arrays take, `constant_floats` the size of the array
    `tw_constant`: both are declared in the text, and here so that they can be checked first.
    `file` is what a user knows the text by: compilers then name its lines. `parameters` has what
    the kernel takes, if that is to be checked: `*` a buffer, `i` a whole number. `parts` say where
    lines of a text are from that was put together from several files.
    """

    name: str
    text: str
    block: Block
    constants: tuple[tuple[str, int | float], ...]
    shared_floats: int = 0
    constant_floats: int = 0
    language: Language = "dialect"
    file: str | None = None
    constant_symbol: str = "tw_constant"
    parameters: str | None = None
    parts: tuple[Part, ...] = ()

    @property
    def defines(self) -> str:
        """The kernel's name, block size and constants, as the prelude and the text know them."""
        x, y, z = self.block
        values = {
            "TW_NAME": self.name,
            "TW_THREADS_X": x,
            "TW_THREADS_Y": y,
            "TW_THREADS_Z": z,
            "TW_CONSTANT_FLOATS": self.constant_floats,
            **{f"TW_{name}": _literal(value) for name, value in self.constants},
        }
        return "".join(f"#define {name} {value}\n" for name, value in values.items())

    @cached_property
    def complete(self) -> str:
        """What the compiler gets."""
        before = prelude() if self.language == "dialect" else ""
        line = "" if self.file is None else f'#line 1 "{self.file}"\n'
        return f"{self.defines}{before}\n{line}{self.text}"

    def check(self, limits: Limits) -> None:
        """DoesNotFit if the device has too little of anything."""
        for what, needed, given, unit in (
            ("a block", math.prod(self.block), limits.threads, "threads"),
            ("shared memory", 4 * self.shared_floats, limits.shared_bytes, "bytes"),
            ("constant memory", 4 * self.constant_floats, limits.constant_bytes, "bytes"),
        ):
            if needed > given:
                raise DoesNotFit(
                    f"{self.name} needs {what} of {needed:,} {unit}; the device has {given:,}"
                )
        for axis, needed, given in zip("xyz", self.block, limits.block, strict=True):
            if needed > given:
                raise DoesNotFit(
                    f"{self.name} needs a block of {needed:,} threads along {axis}; the device has "
                    f"{given:,}"
                )


def placed(parts: tuple[Part, ...], file: str, line: int) -> tuple[str, int]:
    """The file that a line of a text is of, and its number there."""
    before = [part for part in parts if part.line <= line]
    if not before:
        return file, line
    part = before[-1]
    return part.file or file, part.first + line - part.line


@cache
def prelude() -> str:
    return (files("tilewright.runtime") / "prelude.h").read_text()


def _literal(value: int | float) -> str:
    """A C literal: a float is written so that its 32 bits come back."""
    return f"{value}" if isinstance(value, int) else f"{value:.9e}f"
