"""Run something as on a processor without AVX-512, on one that has it.

    python -m benchmarks.without_avx512 -m benchmarks.cpu --json FILE.json

What follows is handed to Python. All libraries in its process, and in those that it starts, are
told by CPUID that there is no AVX-512 and no AMX, so each runs what it has for AVX2: the speeds of
two engines compare as they would on such a processor of this make, though clocks and caches are
this one's. Needs Linux on an Intel processor that can trap CPUID (`cpuid_fault` in /proc/cpuinfo),
and gcc.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "without_avx512.so")
        subprocess.run(
            ["gcc", "-O1", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True
        )
        # glibc looks before anything of ours is loaded.
        tunables = "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX512DQ,-AVX512CD"
        hidden = {"LD_PRELOAD": str(library), "GLIBC_TUNABLES": tunables}
        called = [sys.executable, *sys.argv[1:]]
        sys.exit(subprocess.run(called, env={**os.environ, **hidden}).returncode)


if __name__ == "__main__":
    main()
