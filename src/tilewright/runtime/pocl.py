"""Whether PoCL works here, and where it keeps what it compiles.

It links kernels with the system's `ld` and ends the process without it, so it is tried once in a
process of its own. Without a folder to write in it is not there at all.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.files import atomic_write, cache_home, reason

KERNELS = "pocl-kernels"  # PoCL's folder among what we keep on disk
FOLDER = "POCL_CACHE_DIR"  # what PoCL itself calls it
ROOM = 2**20  # bytes that must fit into it: a few kernels
TRY = """
import numpy, pyopencl as cl
platform = next(p for p in cl.get_platforms() if 'portable' in p.name.lower())
context = cl.Context(platform.get_devices()[:1])
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


def keep_kernels(usual: Path) -> None:
    """Tell PoCL, before it is loaded, to keep kernels where the user has said, or in `usual`.

    Where that cannot be, they are kept in a temporary folder, and the user is told: PoCL would not
    start, and another device would be taken in its place.
    """
    said = os.environ.get(FOLDER)
    folder = Path(said or usual)
    if problem := _no_room(folder, private=not said):
        os.environ[FOLDER] = _temporary()
        print(
            f"tilewright: PoCL cannot keep kernels in {folder} ({problem}) and compiles them every "
            "time",
            file=sys.stderr,
        )
    else:
        os.environ[FOLDER] = str(folder)


def _no_room(folder: Path, private: bool) -> str | None:
    """Why kernels cannot be kept in a folder: what is there is loaded and run, so that nobody else
    may write to a `private` one."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.stat()
        if private and (state.st_uid != os.geteuid() or state.st_mode & 0o022):
            return "others can write there"
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(ROOM))
    except OSError as error:
        return reason(error)
    return None


@cache
def _temporary() -> str:
    """A folder for as long as this process runs."""
    try:
        kept = tempfile.TemporaryDirectory(prefix="tilewright-pocl-", ignore_cleanup_errors=True)
    except OSError as error:
        raise TilewrightError(f"PoCL has no folder to compile in: {reason(error)}") from error
    atexit.register(kept.cleanup)
    return kept.name


@cache
def check_pocl() -> str | None:
    """Why PoCL cannot build kernels here and what it needs, or None. Success is remembered."""
    linker = shutil.which("ld")
    known = cache_home() / "pocl" / _fingerprint(linker)
    if known.exists():
        return None
    # A kernel that PoCL has cached would not be linked, so each try is of a new one.
    salt = str(secrets.randbits(31))
    result = subprocess.run(
        # Not from the current folder (-P): a numpy.py there is not the one that is meant.
        [sys.executable, "-P", "-c", TRY.replace("SALT", salt)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    if result.returncode == 0:
        try:
            known.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(known) as file:
                file.write(b"PoCL builds and runs kernels on this machine.\n")
        except OSError:
            pass  # it will be tried again next time
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


def _fingerprint(linker: str | None) -> str:
    """Of everything the answer depends on: another linker or C library is tried again."""
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
