"""Run something as on a processor without AVX-512, on one that has it.

    python -m benchmarks.without_avx512 -m benchmarks.cpu --engines onnxruntime openvino --json FILE

What follows is handed to Python. The libraries of PACKAGES in its process, and in those that it
starts, are told by CPUID that there is no AVX-512 and no AMX, so each runs what it has for AVX2:
the speeds of two engines compare as they would on such a processor of this make, though clocks and
caches are this one's. PyTorch is not among them. Needs Linux on x86, glibc, gcc and objdump.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
PACKAGES = ("llvmlite", "numpy", "numpy.libs", "onnxruntime", "openvino")
OTHER_DEVICES = ("_gpu_", "_npu_")  # large, and never loaded for a CPU


def libraries() -> Iterator[Path]:
    """Of the packages, those that are code and could ask."""
    for package in PACKAGES:
        for path in Path(sysconfig.get_path("platlib"), package).rglob("*.so*"):
            if not any(word in path.name for word in OTHER_DEVICES) and not path.is_symlink():
                yield path.resolve()


def instructions(library: Path) -> list[str]:
    """Where a library has CPUID, by its disassembly: two bytes alone may be of something else."""
    if b"\x0f\xa2" not in library.read_bytes():
        return []
    called = ["objdump", "--disassemble", "--no-show-raw-insn", "--section=.text", str(library)]
    found = []
    with subprocess.Popen(called, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.rstrip().endswith("cpuid"):
                found.append(f"{line.split(':')[0].strip()} {library}\n")
    if process.returncode:
        raise SystemExit(f"objdump cannot read {library}")
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        library, table = Path(folder, "without_avx512.so"), Path(folder, "instructions")
        subprocess.run(
            ["gcc", "-O1", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True
        )
        with ThreadPoolExecutor(os.cpu_count()) as several:
            table.write_text("".join(chain(*several.map(instructions, libraries()))))
        hidden = {
            "LD_AUDIT": str(library),
            "LD_PRELOAD": str(library),
            "WITHOUT_AVX512": str(table),
            # glibc looks before anything of ours is loaded.
            "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX512DQ,-AVX512CD",
        }
        called = [sys.executable, *sys.argv[1:]]
        sys.exit(subprocess.run(called, env={**os.environ, **hidden}).returncode)


if __name__ == "__main__":
    main()
