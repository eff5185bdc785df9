"""Building blocks of stacks whose lanes read ahead or exchange words, as text, run here."""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.fuse.cuda import on_host
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.emit import struct, text

pytestmark = pytest.mark.skipif(on_host.missing() is not None, reason=str(on_host.missing()))
VALUE = "static float value(unsigned char x, int c) { return x * 0.1f + c - 0.5f; }"
FILLS = r"""
#define BOTH(NAME) extern "C" void run_##NAME(const unsigned char* from, word* to, int first) { \
    for (int thread = 0; thread < Layer::THREADS; ++thread) NAME<Layer>(from, to, first, thread); }
BOTH(fill)
BOTH(fill_from_afar)
"""
TWOS = r"""
struct Layer {};
extern "C" void twos(const word* one, const word* other, word* out, int pixel)
{
    for (turn = 0; turn < 2; ++turn) {
        for (int lane = 0; lane < 32; ++lane) {
            threadIdx.x = lane;
            const int place = lane / 4 == 5 ? -1 : lane / 4 * pixel;
            put_twos<Layer>(out, place, 16, one[lane], other[lane]);
        }
        for (int lane = 0; lane < 32; ++lane) {
            found[lane].swap(handed[lane]);
            handed[lane].clear();
        }
    }
}
"""


def function(name: str, file: str) -> str:
    found = re.search(rf"template <[^>]*>\n[^}}]*?\b{name}\(.*?\n}}\n", text(file), re.DOTALL)
    assert found, name
    return found[0]


def at(words: NDArray[np.generic]) -> ctypes.c_void_p:
    return words.ctypes.data_as(ctypes.c_void_p)


# Channels; floats or operands or halves, in words of their own or without a gap; rows before and
# after those that are there; more threads than pixels, and fewer.
@pytest.mark.parametrize(
    "precision, channels, tight, floats, first, threads",
    [
        ("fp16", 3, True, False, 0, 32), ("fp16", 3, True, False, -2, 500),
        ("fp16", 3, False, False, 1, 7), ("fp16", 1, True, False, 3, 7),
        ("fp16", 4, False, True, 0, 32), ("tf32", 3, False, False, -2, 32),
        ("fp32", 2, False, False, 2, 500), ("tf32", 1, False, True, 0, 7),
    ],
)  # fmt: skip
def test_pixels_that_are_read_ahead_lie_where_others_do(
    precision: str, channels: int, tight: bool, floats: bool, first: int, threads: int
) -> None:
    arithmetic, (height, width, left) = ARITHMETICS[precision], (9, 12, 1)
    pitch = channels if floats else arithmetic.words(channels) + 1
    row = (width + 2 * left) * (channels if tight else pitch)
    values: dict[str, int | str] = {
        "HEIGHT": height, "WIDTH": width, "SOURCE_HEIGHT": height + 1, "CHANNELS": channels,
        "PITCH": pitch, "ROW": row, "LEFT": left, "COPY": height * row + 4 if tight else 0,
        "THREADS": threads, "WHOLE": 0, "TIGHT": int(tight), "FLOATS": int(floats), "ROUND": 1,
    }  # fmt: skip
    unused = "" if precision == "fp16" else "static word pack(float, float) { return 0; }"
    blocks = [function(name, "pictures.cuh") for name in ("put_pixel", "fill", "fill_from_afar")]
    library = on_host.built("\n".join([
        *on_host.defines(arithmetic), on_host.HOST, on_host.ALONE, unused, *blocks,
        struct("Layer", values, VALUE), FILLS,
    ]))  # fmt: skip
    pixels = np.random.default_rng(0).integers(0, 256, (channels, height + 1, width), np.uint8)
    near, far = (np.full(4 * height * row + 64, 7, np.uint32) for _ in range(2))
    library.run_fill(at(pixels), at(near), first)
    library.run_fill_from_afar(at(pixels), at(far), first)
    assert (near != 7).any() and np.array_equal(near, far)


def test_lanes_exchange_words_of_two_columns() -> None:
    """All words of a position follow each other then; those of none are not written."""
    library = on_host.built("\n".join([
        *on_host.defines(ARITHMETICS["fp16"]), on_host.HOST, on_host.ALONE,
        function("put_twos", "sums.cuh"), TWOS,
    ]))  # fmt: skip
    one, pixel = np.arange(32, dtype=np.uint32), 24
    other, out = one + 100, np.full(8 * pixel, 7, np.uint32)
    library.twos(at(one), at(other), at(out), pixel)
    expected = np.full((8, pixel), 7, np.uint32)
    expected[:, 8:16] = np.concatenate([one.reshape(8, 4), other.reshape(8, 4)], 1)
    expected[5] = 7
    assert np.array_equal(out.reshape(8, pixel), expected)
