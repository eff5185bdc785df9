"""Headers of kernel files: everything they may say, and a line with its number for the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import CHARACTERS
from tilewright.precision import FLOAT32, FP16
from tilewright.rungs.own import parse
from tilewright.rungs.own.expression import HeaderError

KERNELS = Path(__file__).parent / "kernels"
LEAST = """/* tilewright
name = "least"

[[kernel]]
entry = "least_conv"
block = [16]
grid = ["OUT_X", "OUT_Y", "IMAGES"]
arguments = ["x", "weight", "bias", "out"]
*/
TW_ENTRY TW_NAME() {}
"""


def read(text, name="mine.cl"):
    return parse(text, Path(name))


def test_what_is_not_said_is_the_usual():
    file = read(LEAST)
    assert (file.name, file.language, file.precision) == ("least", "dialect", FLOAT32)
    assert file.weight_axes == ("filter", "channel", "tap_y", "tap_x")
    assert not file.atomics and not file.adds_bias and file.otherwise is None
    (kernel,) = file.kernels
    assert [each.text for each in kernel.block] == ["16", "1", "1"]
    assert kernel.shared_bytes.value({}) == 0
    assert file.text == LEAST  # so that lines are counted as the user does


def test_everything_may_be_said():
    file = read(
        """
/* tilewright
name = "all-of-it"
idea = "what it changes"
against = "shared"
precision = "fp16"
atomics = true
bias = "added"
weight_order = "taps channel filter"
requires = ["STRIDE_X == 1", "TAPS_X <= 7"]
otherwise = "direct"
constraints = "TILE * EACH <= 64"

[parameters]
TILE = [16, 8]
EACH = {from = 2, to = 8, step = 3}

[sizes]
TILES = "ceil_div(OUT_X, TILE)"
MORE = "TILES * 2"

[scratch]
parts = "MORE * OUT_Y"

[[kernel]]
entry = "first"
block = ["TILE", 2, 1]
grid = ["TILES"]
arguments = ["x", "parts", "IMAGES", "TILE", "THREADS", "CHANNELS"]
shared_floats = "THREADS + 1"

[[kernel]]
entry = "second"
block = [1]
grid = [1]
arguments = ["parts", "out"]
constant = "weight"
shared_bytes = 6
*/
""",
    )
    assert (file.precision, file.atomics, file.adds_bias) == (FP16, True, True)
    assert file.weight_axes == ("tap_y", "tap_x", "channel", "filter")
    assert [each.text for each in file.requires] == ["STRIDE_X == 1", "TAPS_X <= 7"]
    assert file.parameters == {"TILE": (16, 8), "EACH": (2, 5, 8)}
    assert list(file.sizes) == ["TILES", "MORE"] and list(file.scratch) == ["parts"]
    first, second = file.kernels
    assert first.shared_bytes.value({"THREADS": 32}) == 132
    assert (second.constant, second.shared_bytes.value({})) == ("weight", 6)
    assert first.grid[0].place.line == 28


@pytest.mark.parametrize(
    ("name", "language"), [("plane.cl", "dialect"), ("course.cl", "opencl"), ("course.cu", "cuda")]
)
def test_the_language_is_known_from_the_file(name, language):
    assert read((KERNELS / name).read_text(), name).language == language


# A line of LEAST, what takes its place, where the complaint is and what it says.
NAME, KERNEL, BLOCK, GRID, ARGUMENTS = (
    'name = "least"',
    "[[kernel]]",
    "block = [16]",
    'grid = ["OUT_X", "OUT_Y", "IMAGES"]',
    'arguments = ["x", "weight", "bias", "out"]',
)
ENTRY = 'entry = "least_conv"'
WRONG = [
    ("/* tilewright", "/* other", 1, "begins with a comment"),
    ("/* tilewright", "", 1, "begins with a comment"),
    ("*/", "", 1, "does not end"),
    (NAME, "name = least", 2, "not TOML: Invalid value"),
    (NAME, 'name = "least" idea = "x"', 2, "not TOML: Expected newline"),
    (NAME, 'name = "least', 2, "not TOML"),
    (NAME, 'name = """least', 9, "not TOML"),
    (NAME, "name = 3", 2, "name: must be a line of text"),
    (NAME, 'name = ""', 2, "name: must be a line of text"),
    (NAME, 'name = "Least One"', 2, "name: must be small letters"),
    (NAME, r'name = "a\u001b[31m"', 2, "name: must be a line of text"),
    (NAME, 'idea = "a\\nb"', 2, "idea: must be a line of text"),
    (NAME, f'idea = "{"a" * 201}"', 2, "more than 200 characters"),
    (NAME, 'nam = "x"', 2, "unknown key 'nam'; did you mean 'name'?"),
    (NAME, 'precision = "fp8"', 2, "precision: must be fp32 or"),
    (NAME, 'language = "cuda"', 2, "language: must be dialect or opencl"),
    (NAME, "atomics = 1", 2, "atomics: must be true or false"),
    (NAME, 'bias = "none"', 2, "bias: must be argument or added"),
    (NAME, 'bias = "added"', 2, "a kernel takes the bias"),
    (NAME, 'weight_order = "filter channel"', 2, "weight_order: must have each"),
    (NAME, 'weight_order = "filter filter taps"', 2, "weight_order: must have each"),
    (NAME, 'requires = "OUT == 1"', 2, "unknown size 'OUT'; did you mean 'OUT_Y'?"),
    (NAME, 'requires = "IMAGES == 1"', 2, "unknown size 'IMAGES'"),
    (NAME, "requires = [1]", 2, "requires: must be an expression"),
    (NAME, "parameters = 3", 2, "parameters: must be a table"),
    (NAME, "[parameters]\nTILE = []", 3, "TILE: must be a list of whole numbers"),
    (NAME, "[parameters]\nTILE = [1.5]", 3, "TILE: must be a list of whole numbers"),
    (NAME, "[parameters]\nTILE = [-1]", 3, "TILE: must be a list of whole numbers"),
    (NAME, "[parameters]\nTILE = {to = 0}", 3, "TILE: must be a list of whole numbers"),
    (NAME, "[parameters]\nTILE = {to = 9, by = 2}", 3, "TILE: must be a list of whole numbers"),
    (NAME, "[parameters]\nA = {to = 70}\nB = {to = 70}", 4, "more than 4,096 combinations"),
    (NAME, "[parameters]\ntile = [1]", 3, "tile: a size's name has capital letters"),
    (NAME, "[parameters]\nOUT_X = [1]", 3, "OUT_X: the name is taken"),
    (NAME, "[parameters]\nBARRIER = [1]", 3, "BARRIER: the name is taken"),
    (NAME, "[parameters]\nIMAGES = [1]", 3, "IMAGES: the name is taken"),
    (NAME, '[sizes]\nA = "B"\nB = "A"', 3, "unknown size 'B'"),
    (NAME, '[workspace]\nout = "1"', 3, "out: the name is taken"),
    (NAME, '[scratch]\na = "1"\n[workspace]\na = "1"', 5, "a: the name is taken"),
    (NAME, '[workspace]\na = "IMAGES"', 3, "unknown size 'IMAGES'"),
    (NAME, "[sizes]\nA = 1.5", 3, "A: must be a whole number"),
    (NAME, '[sizes]\nA = "IMAGES"', 3, "unknown size 'IMAGES'"),
    (NAME, "[scratch]\nx = 3", 3, "x: the name is taken"),
    (NAME, "[scratch]\nParts = 3", 3, "Parts: a buffer's name has small letters"),
    (KERNEL, "[kernel]", 4, "kernel: must be a table of its own"),
    (KERNEL, "[[kernels]]", 1, "there is no [[kernel]]"),
    (ENTRY, "", 4, "entry: is missing"),
    (ENTRY, 'entry = "least conv"', 5, "entry: must be a name in C"),
    (BLOCK, "", 4, "block: must be a list of one to three"),
    (BLOCK, "block = 16", 6, "block: must be a list of one to three"),
    (BLOCK, "block = []", 6, "block: must be a list of one to three"),
    (BLOCK, "block = [1, 1, 1, 1]", 6, "block: must be a list of one to three"),
    (BLOCK, 'block = ["THREADS"]', 6, "unknown size 'THREADS'"),
    (BLOCK, 'block = ["IMAGES"]', 6, "unknown size 'IMAGES'"),
    (GRID, "grid = [true]", 7, "grid: must be a whole number"),
    (GRID, 'grid = ["OUT_X +"]', 7, "grid: not an expression"),
    (GRID, 'grid = ["OUT_Z"]', 7, "unknown size 'OUT_Z'"),
    (GRID, 'grids = ["OUT_X"]', 4, "grid: must be a list"),
    (ARGUMENTS, 'arguments = "x"', 8, "arguments: must be a list of names"),
    (ARGUMENTS, "arguments = [1]", 8, "arguments: must be a list of names"),
    (ARGUMENTS, 'arguments = ["y", "out", "bias"]', 8, "unknown argument 'y'"),
    (ARGUMENTS, 'arguments = ["x", "out"]', 1, "no kernel takes the bias"),
    (ARGUMENTS, 'arguments = ["x", "bias"]', 1, "no kernel takes out"),
    (ARGUMENTS, f'{ARGUMENTS}\nconstant = "x"', 9, "constant memory holds"),
    (ARGUMENTS, f'{ARGUMENTS}\nconstant_symbol = "k"', 9, "only CUDA C names"),
    (ARGUMENTS, f"{ARGUMENTS}\nshared_floats = 1\nshared_bytes = 4", 10, "says the same"),
    (ARGUMENTS, f"{ARGUMENTS}\nshared = 4", 9, "unknown key 'shared'"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "instead", "at", "problem"), WRONG)
def test_what_is_wrong_is_said_in_one_line_with_its_number(line, instead, at, problem):
    assert LEAST.count(line) == 1
    with pytest.raises(HeaderError) as caught:
        read(LEAST.replace(line, instead))
    message = str(caught.value)
    assert message.startswith(f"mine.cl:{at}: "), message
    assert problem in message
    assert message.isprintable() and len(message) < 300


def test_a_plain_opencl_file_has_constant_memory_as_an_argument():
    text = LEAST.replace(NAME, f'{NAME}\nlanguage = "opencl"').replace(
        ARGUMENTS, f'{ARGUMENTS}\nconstant = "weight"'
    )
    with pytest.raises(HeaderError, match=r"^mine.cl:10: constant: OpenCL C takes constant memory"):
        read(text)


@given(st.data())
def test_any_header_is_read_or_complained_of_in_one_line(data):
    """Bits of headers in any order, and characters thrown in."""
    lines = LEAST.splitlines()
    pieces = [instead for _, instead, _, _ in WRONG]
    place = data.draw(st.integers(1, len(lines) - 1))
    lines.insert(
        place, data.draw(st.one_of(st.sampled_from(pieces), st.text(CHARACTERS, max_size=30)))
    )
    try:
        read("\n".join(lines))
    except HeaderError as error:
        assert str(error).startswith("mine.cl:")
        assert "\n" not in str(error)
