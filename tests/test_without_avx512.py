"""A processor's newer vectors hidden from a program."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys

import pytest
from benchmarks import without_avx512

ASK = """
import llvmlite.binding as llvm
print(*(name for name, has in llvm.get_host_cpu_features().items() if has))
"""
NEWER = ("avx512", "avx10", "amx", "avxvnni", "avxifma", "avxneconvert")


def here() -> list[str]:
    return seen_by([sys.executable, "-c", ASK])


def seen_by(called: list[str]) -> list[str]:
    return subprocess.run(called, check=True, capture_output=True, text=True).stdout.split()


@pytest.mark.skipif(
    platform.system() != "Linux" or platform.machine() != "x86_64",
    reason="not Linux on x86",
)
@pytest.mark.skipif(
    not (shutil.which("gcc") and shutil.which("objdump")), reason="no gcc, or no objdump"
)
def test_a_program_sees_avx2_and_nothing_newer():
    called = [sys.executable, "-m", "benchmarks.without_avx512", "-c", ASK]
    seen = seen_by(called)
    assert seen == [name for name in here() if not name.startswith(NEWER)]


def test_instructions_are_found_where_they_are(tmp_path):
    if not (shutil.which("gcc") and shutil.which("objdump")):
        pytest.skip("no gcc, or no objdump")
    source, library = tmp_path / "asks.c", tmp_path / "asks.so"
    # The same two bytes once as an instruction, once within a number.
    source.write_text("""
        int asks(void) { int a = 0; __asm__("cpuid" : "+a"(a) : : "ebx", "ecx", "edx"); return a; }
        int number(void) { return 0x00a20f00; }
    """)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    assert library.read_bytes().count(b"\x0f\xa2") >= 2
    assert len(without_avx512.instructions(library)) == 1
