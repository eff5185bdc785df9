"""Whether PoCL works here. It links kernels with the system's `ld` and ends the process without
it, so it is tried once in a process of its own."""

from __future__ import annotations

import hashlib
import secrets
import shutil
import subprocess
import sys
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.files import atomic_write, cache_home

TRY = """
import numpy, pyopencl as cl
from tilewright.runtime.pocl_processor import name_processor
platform = next(p for p in cl.get_platforms() if 'portable' in p.name.lower())
device = platform.get_devices()[0]
name_processor(device)
context = cl.Context([device])
queue = cl.CommandQueue(context)
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4)
program = cl.Program(context, '__kernel void try_pocl(__global int *x) { x[0] = SALT; }').build()
program.try_pocl(queue, (1,), None, buffer)
result = numpy.zeros(1, numpy.int32)
cl.enqueue_copy(queue, result, buffer)
assert result[0] == SALT, result
"""


def is_pocl(device: Any) -> bool:
    return "portable" in device.platform.name.lower()


def is_installed() -> bool:
    return find_spec("pocl_binary_distribution") is not None


@cache
def check_pocl() -> str | None:
    """Why PoCL cannot build kernels here and what it needs, or None. Success is remembered."""
    if _known().exists():
        return None
    linker = shutil.which("ld")
    # A kernel that PoCL has cached would not be linked, so each try is of a new one.
    salt = str(secrets.randbits(31))
    result = subprocess.run(
        # Not from the current folder (-P): a numpy.py there is not the one that is meant.
        [sys.executable, "-P", "-c", TRY.replace("SALT", salt)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    if result.returncode == 0:
        with suppress(OSError, TilewrightError):  # it will be tried again next time
            remember()
        return None
    if linker is None:
        return (
            "PoCL needs the linker `ld` to build kernels and finds none: install binutils and the "
            "C library's development files (Debian: apt-get install binutils libc6-dev)"
        )
    words = " ".join(result.stderr.split())[-300:] or f"exit code {result.returncode}"
    return (
        "PoCL cannot build a kernel here; it needs `ld` and the C library's development files "
        f"(Debian: apt-get install binutils libc6-dev). It said: {words}"
    )


def remember() -> None:
    """Note that PoCL was tried on this machine and works."""
    known = _known()
    known.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(known) as file:
        file.write(b"PoCL builds and runs kernels on this machine.\n")


def _known() -> Path:
    return cache_home() / "pocl" / _fingerprint(shutil.which("ld"))


def _fingerprint(linker: str | None) -> str:
    """Of everything the answer depends on: another linker or C library is tried again."""
    from importlib.metadata import PackageNotFoundError, version  # workers have no use for it

    facts = [sys.executable]
    for path in (
        Path(linker or "/"),
        *sorted(Path("/usr").glob("lib*/crti.o")),
        *sorted(Path("/usr").glob("lib*/*/crti.o")),
    ):
        state = path.resolve().stat()
        facts.append(f"{path} {state.st_size} {state.st_mtime_ns}")
    for package in ("pyopencl", "pocl-binary-distribution"):
        try:
            facts.append(version(package))
        except PackageNotFoundError:
            facts.append("system")
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
