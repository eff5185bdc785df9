"""docs/your-kernel.md: its kernels are right, and what it says of headers and names is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.rungs.gpu.kernels import USUAL
from tests.rungs.own.test_rung import ODD, geometry, needs_nvrtc, needs_opencl, network
from tests.test_docs import ROOT, blocks, read
from tilewright.cli import main
from tilewright.precision import CLASSES
from tilewright.rungs.own import load, parse
from tilewright.rungs.own.expression import FUNCTIONS, HeaderError
from tilewright.rungs.own.header import SIZES, THREADS
from tilewright.rungs.own.start import LIKE, start
from tilewright.runtime import nvrtc
from tilewright.runtime.device import OPENCL
from tilewright.runtime.dialect import prelude
from tilewright.truth.verify import verify_at_hand

PAGE = ROOT / "docs" / "your-kernel.md"
FILES = sorted((ROOT / "docs" / "kernels").iterdir())
files = pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
COURSE = ROOT / "tests" / "rungs" / "own" / "kernels" / "course.cl"


@needs_opencl
@pytest.mark.usefixtures("not_optimised")
@files
def test_its_kernels_are_right(file):
    assert verify_at_hand(load(file), OPENCL, network(ODD), batch=5).fault is None


@needs_nvrtc
@files
def test_its_kernels_are_cuda_too(file):
    (work,) = load(file).convolutions.design(geometry(filters=8), USUAL).works
    assert nvrtc.compile_source(work.source, "sm_90").registers <= 255


@files
def test_it_links_every_kernel(file):
    assert f"(kernels/{file.name})" in read(PAGE)


def test_what_it_shows_of_kernels_is_in_them():
    texts = [file.read_text() for file in FILES]
    shown = blocks(PAGE, "c")
    assert len(shown) == 3
    for block in shown:
        assert any(block in text for text in texts), block


def test_the_start_is_what_new_writes():
    written = start("naive", "direct", "dialect")
    idea = re.search('^idea = "(.*)"$', written, re.MULTILINE)[1]
    shown = (ROOT / "docs" / "kernels" / "naive.cl").read_text()
    assert re.sub('(?m)^idea = ".*"$', f'idea = "{idea}"', shown) == written


def test_the_course_s_header_is_one():
    several, course = blocks(PAGE, "toml")
    assert all(line in (ROOT / "docs/kernels/several-filters.cl").read_text()
               for line in several.splitlines())  # fmt: skip
    shown = parse(f"/* tilewright\n{course}*/", Path("course.cu"))
    tested = parse(COURSE.read_text(), COURSE)
    assert shown.kernels[0].arguments == tested.kernels[0].arguments
    for mine, theirs in zip(shown.kernels[0].grid, tested.kernels[0].grid, strict=True):
        assert mine.text == theirs.text
    assert [e.text for e in shown.requires] == [e.text for e in tested.requires]


def keys_of(header):
    """What a header may say, as the complaint about what it may not has it."""
    with pytest.raises(HeaderError) as caught:
        parse(header, Path("mine.cl"))
    return set(str(caught.value).partition("known: ")[2].split(", "))


def test_every_key_of_a_header_is_in_its_tables_and_no_other():
    kernel = '[[kernel]]\nentry = "a"\nblock = [1]\ngrid = [1]\narguments = ["bias", "out"]\n'
    known = keys_of(f"/* tilewright\nqqqqqqqqqq = 1\n{kernel}*/")
    known |= keys_of(f"/* tilewright\n{kernel}qqqqqqqqqq = 1\n*/")
    tables = read(PAGE).partition("## The header")[2]
    cells = re.findall(r"^\| (`[^|]*`) \|", tables, re.MULTILINE)
    shown = {name.strip("[]") for cell in cells for name in re.findall("`([^`]*)`", cell)}
    # shared_floats is another word for shared_bytes, and asked for only where it is there.
    assert shown == known | {"shared_floats"}


def test_names_that_it_mentions_exist():
    text = read(PAGE)
    macros = set(re.findall(r"#define (TW_\w+)", prelude())) | {"TW_NAME", "TW_CONSTANT_FLOATS"}
    sizes = {f"TW_{name}" for name in (*SIZES, *THREADS)}
    own = {"TW_EACH", "TW_WIDE", "TW_TILES_X"}  # of the headers shown
    assert set(re.findall(r"\bTW_\w+", text)) <= macros | sizes | own
    for name in (*SIZES, *THREADS, *FUNCTIONS, *CLASSES, *LIKE):
        assert f"`{name}`" in text or f'`"{name}"`' in text, name


@needs_opencl
@pytest.mark.usefixtures("quick_workers", "not_optimised")
@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("typo", "float sum = bias[filter];", "float sum = bais[filter]"),
        ("border", "xx >= 0 &&", "xx > 0 &&"),
    ],
)
def test_what_is_wrong_is_told_as_it_is_shown(name, right, wrong, tmp_path, monkeypatch, capsys):
    """But for the compiler's words, the numbers that are drawn, and the ends of lines."""
    monkeypatch.chdir(tmp_path)
    text = start(name, "direct", "dialect")
    assert text.count(right) == 1
    Path(f"{name}.cl").write_text(text.replace(right, wrong))
    (shown,) = (block for block in blocks(PAGE, "text") if f"./{name}.cl" in block)
    command, _, expected = shown.partition("\n")
    assert main(command.split()[2:]) == 2
    error = capsys.readouterr().err
    if name == "typo":
        forms = [re.sub(r"(:\d+:\d+:) .*", r"\1", words) for words in (error, expected)]
        assert forms[0] == forms[1]
    else:
        forms = [re.sub(r"-?\d+", "0", " ".join(words.split())) for words in (error, expected)]
        assert forms[0] == forms[1]
