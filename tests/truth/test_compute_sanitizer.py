"""What compute-sanitizer says, at the lines of the file; a stand-in says it."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.own_kernels import DIRECT, kernel_file
from tests.rungs.gpu.kernels import USUAL
from tests.rungs.own.test_rung import geometry, needs_nvrtc
from tilewright.judge.check import Checked
from tilewright.rungs.own import load, parse
from tilewright.runtime import nvrtc
from tilewright.runtime.device import CUDA
from tilewright.truth import compute_sanitizer
from tilewright.truth.compute_sanitizer import _findings
from tilewright.truth.sanitize import sanitize
from tilewright.views import check as view

# As versions 2024 and 2025 print it.
MEMCHECK = """\
 COMPUTE-SANITIZER
 Invalid __global__ write of size 4 bytes
     at conv+0xd0 in mine.cl:3
     by thread (0,0,0) in block (0,0,0)
     Access at 0x7f241b0001e0 is out of bounds
     and is 33 bytes after the nearest allocation at 0x7f241b000000 of size 448 bytes

 Invalid __global__ write of size 4 bytes
     at conv+0xd0 in mine.cl:3
     by thread (1,0,0) in block (0,0,0)
     Access at 0x7f241b0001e4 is out of bounds

 Invalid __shared__ read of size 4 bytes
     at helper(float *)+0x40 in prelude.h:9
     by thread (1,0,0) in block (0,0,0)
     Access at 0x3 is misaligned
         Device Frame: conv+0x60 in mine.cl:2

 Invalid __global__ read of size 4 bytes
     at cupy_copy__float32_float32+0x40
     by thread (1,0,0) in block (0,0,0)
     Access at 0x3 is out of bounds

 ERROR SUMMARY: 4 errors
"""
RACECHECK = """\
 Error: Race reported between Write access at conv+0x90 in mine.cl:2
     and Read access at conv+0xa0 in mine.cl:3 [2048 hazards]
     and Read access at conv+0xb0 in mine.cl:4 [64 hazards]

 Warning: Race reported between Write access at conv+0x90 in mine.cl:1
     and Write access at conv+0x90 in mine.cl:1 [31 hazards]

 RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""
# As it was until 2022.
OLDER = """\
 Barrier error detected. Divergent thread(s) in block
     at 0x8f0 in /home/me/mine.cl:4:conv(int*)
     by thread (63,0,0) in block (0,0,0)
 Barrier error detected. Divergent thread(s) in warp.
     at conv(int *)+0xb0 in mine.cl:3
 Uninitialized __global__ memory read of size 4 bytes
     at 0x100 in /home/me/mine.cl:1:conv(const int *, int *)
     by thread (98,0,0) in block (194,0,0)
     Address 0x7fbbca800000
 Barrier error detected. Invalid arguments.
     at conv+0xb0
 ERROR SUMMARY: 4 errors
"""
SOURCE = "first;\n  second;\nthird;\nfourth;"


def findings(said):
    file = parse(kernel_file(DIRECT), Path("mine.cl"))
    return dict.fromkeys(_findings(said.split("\n"), replace(file, text=SOURCE)))


def test_accesses_are_told_once_a_line_and_of_the_files_kernels_only():
    first, second = findings(MEMCHECK)
    assert (first.text, first.lines) == ("invalid write: writes outside", ((3, "third;"),))
    assert second.text == "invalid read in shared memory: reads at an address that is not aligned"
    assert second.lines == ((2, "second;"),)


def test_races_name_all_lines_that_take_part():
    both, writes = findings(RACECHECK)
    assert both.text.startswith("read-write data race in shared memory: one thread reads")
    assert both.lines == ((2, "second;"), (3, "third;"), (4, "fourth;"))
    assert writes.text.startswith("write-write data race") and writes.lines == ((1, "first;"),)


def test_older_versions_are_understood():
    block, warp, unwritten, other = findings(OLDER)
    assert block.text.endswith("threads of a block reach") and block.lines == ((4, "fourth;"),)
    assert warp.text.endswith("threads of a warp reach")
    assert unwritten.text.startswith("uninitialised") and unwritten.lines == ((1, "first;"),)
    assert (other.text, other.lines) == ("barrier error: invalid arguments", ())


@needs_nvrtc
def test_machine_code_of_a_file_carries_its_lines_and_is_the_same(tmp_path):
    path = tmp_path / "mine.cl"
    path.write_text(kernel_file(DIRECT))
    (work,) = load(path).convolutions.design(geometry(), USUAL).works
    named = nvrtc.compile_source(work.source, "sm_90")
    plain = nvrtc.compile_source(replace(work.source, file=None), "sm_90")
    lines, code = ".debug_line", f".text.{named.entry}"
    assert b"mine.cl" in nvrtc._section(named.cubin, lines)
    assert not nvrtc._section(plain.cubin, lines)
    assert nvrtc._section(named.cubin, code) == nvrtc._section(plain.cubin, code) != b""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Something called compute-sanitizer that is handed the words to say for each tool."""

    def install(body):
        script = tmp_path / "compute-sanitizer"
        script.write_text(f"#!{sys.executable}\nimport os, sys, time\ntool = sys.argv[2]\n{body}")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        path = tmp_path / "mine.cl"
        path.write_text(kernel_file(DIRECT))
        return path

    return install


def marked(said):
    return "".join(f"========={line}\n" for line in said.split("\n"))


def test_each_tool_watches_the_file_and_all_findings_are_shown(stand_in):
    told = {"memcheck": marked(MEMCHECK), "racecheck": marked(RACECHECK)}
    quiet = marked(" ERROR SUMMARY: 0 errors")
    path = stand_in(
        f"assert sys.argv[-3:] == ['tilewright.truth.watched', sys.argv[-2], 'cuda']\n"
        f"print({told!r}.get(tool, {quiet!r}))\nprint('all layers are computed')\n"
    )
    doing = []
    found = sanitize(path, CUDA, doing.append)
    assert doing == [f"watching with {tool}" for tool in compute_sanitizer.TOOLS]
    assert not found.problem and len(found.findings) == 4
    shown = list(view.lines(Checked("mine.cl", "mine", "", "fp32", "right"), found, 1))
    assert "  COMPUTE-SANITIZER: invalid write: writes outside" in shown
    third = path.read_text().split("\n")[2].strip()
    assert f"    line 3: {third}" in shown


def test_nothing_found_says_what_was_looked_for(stand_in):
    path = stand_in("print('========= ERROR SUMMARY: 0 errors\\nall layers are computed')\n")
    found = sanitize(path, CUDA)
    assert not found.problem and not found.findings
    shown = "\n".join(view.lines(Checked("mine.cl", "mine", "", "fp32", "right"), found, 1))
    assert "compute-sanitizer: nothing outside, no race" in shown


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("print('========= Error: Device not supported')", "gave up: Error: Device not supported"),
        ("print('no GPU\\n========= ERROR SUMMARY: 0 errors')", "memcheck gave up: no GPU"),
        ("sys.exit(3)", "memcheck gave up: no reason"),
    ],
)
def test_a_sanitizer_that_did_not_see_the_end_found_nothing_out(stand_in, body, words):
    assert words in sanitize(stand_in(body), CUDA).problem


def test_a_hang_ends_with_all_that_was_started(stand_in, tmp_path, monkeypatch):
    monkeypatch.setattr(compute_sanitizer, "SECONDS", 0.5)
    held = tmp_path / "held"
    path = stand_in(
        f"import fcntl\nheld = open({str(held)!r}, 'w')\nfcntl.flock(held, fcntl.LOCK_EX)\n"
        "os.fork()\ntime.sleep(60)\n"
    )
    assert sanitize(path, CUDA).problem == "memcheck took longer than 0.5 s"
    assert free(held)


def free(held):
    """Whether all are gone that had it: they die as soon as the system comes to it, or in a minute
    by themselves."""
    with held.open("w") as file:
        for _ in range(200):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                time.sleep(0.1)
    return False


def test_where_there_is_none_it_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    assert "CUDA toolkit" in sanitize(tmp_path / "mine.cl", CUDA).problem
