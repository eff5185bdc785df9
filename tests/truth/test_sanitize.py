"""A simulator finds what PoCL does not, at the lines of the file."""

from __future__ import annotations

import pytest

from tests.own_kernels import DIRECT, NO_BARRIER, kernel_file
from tilewright.judge.check import Checked
from tilewright.runtime import opencl
from tilewright.runtime.device import OPENCL
from tilewright.truth.sanitize import sanitize
from tilewright.views import check as view

pytestmark = pytest.mark.skipif(
    bool(opencl.unusable()) or not any(map(opencl.is_simulator, opencl.devices())),
    reason="no Oclgrind: pyopencl[oclgrind]",
)


@pytest.fixture
def simulated(tmp_path):
    def run(text, name="mine.cl"):
        path = tmp_path / name
        path.write_text(text)
        return sanitize(path, OPENCL)

    return run


def test_a_missing_barrier_is_a_race_between_two_lines(simulated):
    found = simulated(NO_BARRIER)
    lines = [line.strip() for line in NO_BARRIER.split("\n")]
    written = 1 + lines.index("pixels[i] = value;")
    assert any(written in dict(each.lines) for each in found.findings)
    assert len(found.findings) == len(set(found.findings)) <= 8
    shown = list(view.lines(Checked("mine.cl", "mine", "", "fp32", "right"), found, 1))
    assert f"    line {written}: pixels[i] = value;" in shown
    assert any("read-write data race in shared memory" in line for line in shown)


def test_a_row_that_is_written_twice_is_a_race(simulated):
    found = simulated(kernel_file(DIRECT, ("column < TW_OUT_X && row", "row")))
    texts = [each.text for each in found.findings]
    assert any("two threads write to the same place" in text for text in texts)


def test_nothing_is_found_in_a_right_file(simulated):
    found = simulated(kernel_file(DIRECT))
    assert not found.findings and not found.problem


def test_what_cannot_be_simulated_says_so(simulated):
    assert "not CUDA C" in simulated("/* tilewright */", "mine.cu").problem
    assert "gave up" in simulated("no kernel file").problem
