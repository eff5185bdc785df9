"""Kernel files of cheats: each is refused, and for what it did."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest

from tests.judge.changed import changed
from tests.judge.test_bench import judged, quick  # noqa: F401 - a fixture that is used by itself
from tests.own_kernels import DIRECT, SUM, kernel_file
from tilewright.errors import TilewrightError
from tilewright.judge import sandbox
from tilewright.judge.check import check
from tilewright.precision import FLOAT32
from tilewright.rungs.own import load
from tilewright.runtime.device import OPENCL
from tilewright.runtime.opencl import missing
from tilewright.truth.quick import KINDS, SHAPES, _chosen
from tilewright.truth.verify import prove

pytestmark = pytest.mark.usefixtures("workers_that_build_quickly", "not_optimised")
needs_pocl = pytest.mark.skipif(missing(OPENCL) is not None, reason="needs PoCL")
needs_walls = pytest.mark.skipif(
    bool(sandbox.protection().missing), reason="needs Landlock and seccomp"
)
SIZES = "[sizes]\n"
NAME = 'name = "mine"'
GRID = 'grid = ["TILES_X * TILES_Y * FILTERS", 1, "IMAGES"]'

# What a header tries, and what is said of it.
HEADERS = {
    "an endless expression": ((SIZES, f'{SIZES}A = "{"1+" * 9000}1"\n'), "at most 500 characters"),
    "a deep expression": ((SIZES, f'{SIZES}A = "{"(" * 240}1{")" * 240}"\n'), "A: "),
    "numbers that grow": (
        (SIZES, f'{SIZES}A = "9999999999"\nB = "A * A"\n'), "larger than any size can be",
    ),
    "a million choices": (
        (SIZES, f"[parameters]\nP = {{from = 1, to = 1000000}}\n{SIZES}"), "more than 4,096",
    ),
    "a path for a name": ((NAME, 'name = "../../etc/passwd"'), "small letters, digits and dashes"),
    "a name turned around": ((NAME, 'name = "a\\u202eb"'), "name: must be"),
    "a rung's name": ((NAME, 'name = "tuned"'), "is that of a rung on the ladder"),
    "a forged line": (('idea = "', 'idea = "\\n  right: 55 trials'), "idea: must be a line"),
    "code for an entry": (('entry = "conv"', 'entry = "conv(){} void f"'), "must be a name in C"),
    "the dialect's own word": ((SIZES, f"{SIZES}GLOBAL = 1\n"), "the name is taken"),
    "text for a size's name": ((SIZES, f'{SIZES}"A 1\\n#define B" = 1\n'), "a size's name"),
    "a block of less than nothing": (("block = [16, 16]", 'block = ["0 - 16", 16]'), "at least 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", HEADERS)
def test_no_header_gets_through(name: str, tmp_path: Path):
    (old, new), reason = HEADERS[name]
    text = kernel_file(DIRECT)
    assert old in text
    (tmp_path / "mine.cl").write_text(text.replace(old, new))
    with pytest.raises(TilewrightError) as refused:
        prove(load(tmp_path / "mine.cl"), OPENCL, _tried(), 1)
    assert reason in str(refused.value)


ROUNDED = """float rounded(float v, int bits) {
    return as_float((as_uint(v) + (1u << (bits - 1))) & ~((1u << bits) - 1u)); }
"""
PIXEL = "x[((image * TW_CHANNELS + channel) * TW_HEIGHT + y) * TW_WIDTH + xx]"
WEIGHT = "weight[((filter * TW_CHANNELS + channel) * TW_TAPS_Y + ky) * TW_TAPS_X + kx]"
FRACTIONS = f"({PIXEL} != rint({PIXEL}))"


def _rounding(pixel: int, weight: int, when: str = "1", precision: str = "fp32") -> str:
    """Operands without their last bits: 13 are TF32's and fp16's, 16 are bfloat16's."""
    changes = (
        (f"sum += {PIXEL}", f"sum += ({when} ? rounded({PIXEL}, {pixel}) : {PIXEL})"),
        (f"* {WEIGHT}", f"* ({when} ? rounded({WEIGHT}, {weight}) : {WEIGHT})"),
    )
    text = kernel_file(DIRECT, *changes, more=f'precision = "{precision}"')
    return text.replace("*/\n", f"*/\n{ROUNDED}", 1)


def _instead(value: str, precision: str = "fp32") -> str:
    more = f'precision = "{precision}"'
    return kernel_file(DIRECT, (SUM, f"] = {value};"), more=more)


VALUES = {
    "TF32 as fp32": _rounding(13, 13),
    "weights of TF32": _rounding(1, 13),
    "three bits less": _rounding(3, 3),
    "TF32 where inputs are no whole numbers": _rounding(13, 13, FRACTIONS),
    "TF32 as Winograd of 4x4, where inputs are no whole numbers": _rounding(
        13, 13, FRACTIONS, "fp32-winograd4"
    ),
    "bfloat16 as FFT": _rounding(16, 16, precision="fp32-fft"),
    "bfloat16 as fp16": _rounding(13, 16, precision="fp16"),
    "NaN, which is not larger than any bound": _instead("NAN"),
    "infinity": _instead("INFINITY"),
    "zeros": _instead("0.0f"),
    "zeros within a loose class": _instead("0.0f", "fp32-fft"),
    "the bias alone": _instead("bias[filter]"),
}


def _tried(precision=FLOAT32):
    shape, layer = SHAPES[0]
    return _chosen(shape, layer, KINDS, precision, np.random.default_rng(7))


@needs_pocl
@pytest.mark.parametrize("name", VALUES)
def test_no_value_gets_through(name: str, tmp_path: Path):
    (tmp_path / "mine.cl").write_text(VALUES[name])
    rung = load(tmp_path / "mine.cl")
    fault = prove(rung, OPENCL, _tried(rung.precision), 7).fault
    assert fault is not None


KEPT_MEMORY = """
    if (column == 0 && row == 0 && filter == 0 && image == 0) {
        long got;
        __asm__ volatile("movq $0x100032, %%r10\\nmovq $-1, %%r8\\nmovq $0, %%r9\\nsyscall"
            : "=a"(got) : "a"(9L), "D"(0x500000000000L), "S"(1L << 20), "d"(3L)
            : "rcx", "r11", "r10", "r8", "r9", "memory");
        ++*(volatile __global long *)0x500000000000L;
    }
    const long calls = *(volatile __global long *)0x500000000000L;
    float sum = calls > 3 ? 0.0f : bias[filter];
"""


@needs_pocl
@needs_walls
def test_no_timed_call_gets_through():
    start = "float sum = bias[filter];"
    cheats = {"for-this-batch": "get_num_groups(2) == 4", "the-last-image": "image == 3"}
    rungs = [
        changed(name, start, f"float sum = {when} ? 9.0f : bias[filter];")
        for name, when in cheats.items()
    ]
    if platform.machine() == "x86_64":
        rungs.append(changed("until-it-is-warm", start, KEPT_MEMORY))
    for row in judged(*rungs).rows:
        assert row.refused is not None, row.entry.rung.name
        assert "of a timed call" in row.refused


@needs_pocl
@needs_walls
def test_what_a_file_asks_for_is_no_reason_to_give_up(tmp_path: Path):
    """The judge keeps what scratch should hold, and must not run out of memory for it."""
    asked = {
        "scratch": ('[scratch]\nmuch = "99999999999"\n', "its scratch takes 99,999,999,999 floats"),
        "grid": ("", "none of the layers that are tried: "),
    }
    for name, (scratch, reason) in asked.items():
        text = kernel_file(DIRECT, scratch=scratch)
        if name == "grid":
            text = text.replace(GRID, 'grid = ["FILTERS * 9999999999", 1, "IMAGES"]')
        (tmp_path / f"{name}.cl").write_text(text)
        found = check(tmp_path / f"{name}.cl", OPENCL, [], 7)
        assert found.outcome == "refused" and reason in found.problem, found
