"""Files that a kernel file includes: in their place, at their own lines, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.own_kernels import DIRECT, kernel_file
from tests.rungs.gpu.kernels import USUAL
from tests.rungs.own.test_rung import ODD, geometry, needs_nvrtc, needs_opencl, network
from tilewright.errors import TilewrightError
from tilewright.judge.submissions import submissions
from tilewright.plan_file import sha256_of
from tilewright.rungs.own import load
from tilewright.rungs.own.includes import included_by, whole
from tilewright.runtime import nvrtc
from tilewright.runtime.complaints import KernelDoesNotCompile
from tilewright.runtime.device import OPENCL
from tilewright.runtime.dialect import placed
from tilewright.runtime.nvrtc_worker import headers
from tilewright.truth.findings import lines_of
from tilewright.truth.verify import verify_at_hand

INSIDE = "static int inside(int y, int x) {\n    return y >= 0 && y < TW_HEIGHT && x >= 0 && x < TW_WIDTH;\n}\n"  # noqa: E501
TEST = "y >= 0 && y < TW_HEIGHT && xx >= 0 && xx < TW_WIDTH"


@pytest.fixture
def mine(tmp_path):
    """A kernel file whose test for the border is in a file that it includes."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "border.h").write_text(f"#pragma once\n{INSIDE}")
    (tmp_path / "all.h").write_text('#include "parts/border.h"\n')
    text = kernel_file(DIRECT, (TEST, "inside(y, xx)"))
    path = tmp_path / "mine.cl"
    path.write_text(text.replace("*/\n", '*/\n#include "all.h"\n#include "parts/border.h"\n', 1))
    return path


@needs_opencl
@pytest.mark.usefixtures("not_optimised")
def test_what_is_included_is_compiled_and_proven(mine):
    assert verify_at_hand(load(mine), OPENCL, network(ODD), batch=5).fault is None


def test_lines_are_of_the_files_that_they_come_from(mine):
    text, parts = whole(mine)
    lines = text.split("\n")
    file, at = placed(parts, "mine.cl", 1 + lines.index(INSIDE.split("\n")[1]))
    assert (file, at) == ("parts/border.h", 3)
    entry = next(i for i, line in enumerate(lines, 1) if line.startswith("TW_ENTRY"))
    own = mine.read_text().split("\n")
    file, at = placed(parts, "mine.cl", entry)
    assert file == "mine.cl" and own[at - 1] == lines[entry - 1]
    assert included_by(mine) == ["parts/border.h"]
    shown = lines_of(text, parts, [1 + lines.index(INSIDE.split("\n")[1]), entry])
    assert shown[0][1].startswith("in parts/border.h: return y >= 0") and shown[0][0] == 3
    assert shown[1] == (at, own[at - 1].strip())


@needs_opencl
@pytest.mark.parametrize("broken", ["parts/border.h", "mine.cl"])
def test_errors_are_at_the_lines_of_the_file_that_has_them(mine, broken):
    path = mine.parent / broken
    own = path.read_text().replace("return y", "return why").replace("float sum =", "float sum ==")
    path.write_text(own)
    place = next(
        i for i, line in enumerate(own.split("\n"), 1) if "why" in line or "==" in line[:30]
    )
    with pytest.raises(KernelDoesNotCompile) as error:
        verify_at_hand(load(mine), OPENCL, network(ODD), batch=5)
    assert str(error.value).startswith(f"{broken}:{place}:")
    assert own.split("\n")[place - 1].strip() in error.value.report


@needs_nvrtc
@pytest.mark.skipif(not headers(), reason="no headers of CUDA's: a toolkit has them")
def test_cudas_own_headers_are_found(tmp_path):
    text = kernel_file(
        DIRECT,
        ("float sum = bias[filter];", "float sum = __half2float(__float2half(bias[filter]));"),
    )
    path = tmp_path / "mine.cl"
    path.write_text(text.replace("*/\n", '*/\n#include <cuda_fp16.h>\n#include "mma.h"\n', 1))
    for work in load(path).convolutions.design(geometry(), USUAL).works:
        assert nvrtc.compile_source(work.source, "sm_90").registers


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('#include "../other.h"', "only files in the kernel file's folder"),
        ('  #  include "/etc/passwd"', "only files in the kernel file's folder"),
        ('#include ""', "only files in the kernel file's folder"),
        ('#include "other.cl"', "files to include end in .h"),
        ('#include "again.h"', "it includes itself"),
        ('#include "link.h"', "it is a link"),
        ('#include "large.h"', "more than 1,000,000 bytes"),
        ('#include "folder.h"', "is not a plain file"),
    ],
)
def test_what_cannot_be_included_is_refused_at_its_line(tmp_path, line, problem):
    (tmp_path / "other.cl").write_text(kernel_file(DIRECT))
    (tmp_path / "again.h").write_text('#include "again.h"\n')
    (tmp_path / "large.h").write_text(" " * 1_000_001)
    (tmp_path / "link.h").symlink_to(tmp_path / "other.cl")
    (tmp_path / "folder.h").mkdir()
    path = tmp_path / "mine.cl"
    path.write_text(kernel_file(DIRECT) + line)
    with pytest.raises(TilewrightError, match=problem):
        load(path)


def test_a_change_in_an_included_file_is_a_change(mine):
    before = sha256_of(mine)
    (mine.parent / "parts" / "border.h").write_text(INSIDE)
    assert sha256_of(mine) != before


def test_a_submission_has_all_that_it_includes(mine):
    before = _of(mine.parent, "mine")
    assert list(before.included) == ["parts/border.h"]
    (mine.parent / "parts" / "border.h").write_text(INSIDE)
    assert _of(mine.parent, "mine").digest != before.digest


def _of(folder: Path, student: str):
    return next(each for each in submissions(folder) if each.student == student)
