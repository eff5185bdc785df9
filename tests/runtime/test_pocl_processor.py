"""PoCL on processors that its compiler does not know, whatever the one here is."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

from tilewright.runtime import opencl
from tilewright.runtime.device import OPENCL
from tilewright.runtime.pocl_processor import NAMES, UNKNOWN, known_name, rename

AVX2 = {"sse2", "avx", "avx2", "fma", "bmi1", "bmi2", "movbe", "abm", "f16c"}
AVX512 = {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"}


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ({"sse2"}, b"x86-64\0"),
        ({"sse2", "avx"}, b"x86-64\0"),
        (AVX2 - {"fma"}, b"x86-64\0"),
        (AVX2, b"haswell\0"),
        (AVX2 | AVX512 - {"avx512vl"}, b"haswell\0"),
        (AVX2 | AVX512, b"skx\0"),
        (AVX512, b"x86-64\0"),  # what no processor is
        (set(), b"x86-64\0"),
    ],
)
def test_the_most_that_a_processor_can_do(flags, name):
    assert known_name(flags) == name
    assert all(len(each) <= len(UNKNOWN) for each in NAMES)


@pytest.mark.skipif(sys.platform != "linux", reason="not Linux")
def test_the_unknown_name_alone_is_written_over():
    unknown, known = (ctypes.create_string_buffer(name, 16) for name in (b"generic", b"znver3"))
    longer = ctypes.create_string_buffer(b"generic-rv64", 16)
    words = [ctypes.addressof(each) for each in (known, unknown, longer)]
    description = (ctypes.c_uint64 * 100)(7, words[0], 2**64 - 1, words[1], 0, 4096, words[2])
    rename(ctypes.addressof(description), b"haswell\0")
    assert [each.value for each in (known, unknown, longer)] == [
        b"znver3", b"haswell", b"generic-rv64",
    ]  # fmt: skip


# As PoCL is after it asked an LLVM that has no name for this processor: its own name is gone.
FORGET = """
import ctypes, re, sys
from pathlib import Path
import pyopencl as cl
from tilewright.runtime import pocl_processor
from tilewright.runtime.pocl import TRY

device = next(p for p in cl.get_platforms() if "portable" in p.name.lower()).get_devices()[0]
library = re.search(r"/\\S*libpocl\\S*", Path("/proc/self/maps").read_text()).group()
ask = ctypes.CDLL(library).pocl_get_llvm_cpu_name
ask.restype = ctypes.c_char_p
name = ask()[:8].ljust(8, b"\\0")
places = (place for place, found in pocl_processor.pointed_at(device.int_ptr) if found == name)
ctypes.memmove(next(places), pocl_processor.UNKNOWN, 8)
if sys.argv[1] == "left":
    pocl_processor.name_processor = lambda device: None
exec(TRY.replace("SALT", sys.argv[2]))
"""


@pytest.mark.skipif(
    opencl.missing(OPENCL) is not None or not opencl.is_pocl(opencl.devices()[0]),
    reason="no PoCL that works",
)
def test_pocl_builds_for_a_processor_without_a_name(tmp_path):
    def tried(how: str) -> subprocess.CompletedProcess[str]:
        # Not in the cache of others: what is there is not built.
        return subprocess.run(
            [sys.executable, "-c", FORGET, how, "4711"],
            env={**os.environ, "POCL_CACHE_DIR": str(tmp_path), "PYOPENCL_NO_CACHE": "1"},
            capture_output=True, text=True,
        )  # fmt: skip

    left = tried("left")
    assert left.returncode
    assert "unknown target CPU 'generic'" in left.stderr
    named = tried("named")
    assert named.returncode == 0, named.stderr
