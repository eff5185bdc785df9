"""A processor's newer vectors hidden from a program."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FLAGS = Path("/proc/cpuinfo")
ASK = """
import llvmlite.binding as llvm
print(*(name for name, has in llvm.get_host_cpu_features().items() if has))
"""


@pytest.mark.skipif(
    not FLAGS.exists() or " cpuid_fault" not in FLAGS.read_text() or not shutil.which("gcc"),
    reason="no processor that can trap CPUID, or no gcc",
)
def test_a_program_sees_avx2_and_nothing_newer():
    called = [sys.executable, "-m", "benchmarks.without_avx512", "-c", ASK]
    seen = subprocess.run(called, check=True, capture_output=True, text=True).stdout.split()
    assert "sse2" in seen
    assert [name for name in seen if name.startswith(("avx512", "avx10", "amx"))] == []
    if " avx2 " in FLAGS.read_text():
        assert "avx2" in seen
