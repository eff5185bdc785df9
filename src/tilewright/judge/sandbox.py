"""What a worker gives up before it touches a kernel: files, network, processes, signals, room.

Landlock leaves it the interpreter, the libraries and one folder to write in; a filter of system
calls takes everything else that reaches out of the process. Both hold for whatever it starts, and
nothing can lift them again.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import site
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tilewright.errors import TilewrightError
from tilewright.judge import landlock, seccomp
from tilewright.judge.allowance import Allowance
from tilewright.judge.process import threads_of

# What programs of any kind need: libraries, and what they ask of the machine.
SYSTEM = (
    *("/usr", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/OpenCL", "/etc/localtime"),
    *("/sys/devices/system", "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat"),
    *("/dev/urandom", "/dev/random", "/dev/zero"),
)
# What drivers of GPUs need besides.
DRIVERS = (
    *("/sys/bus/pci", "/sys/devices", "/sys/class", "/sys/module", "/proc/driver/nvidia"),
    *("/etc/nvidia", "/opt/cuda", "/opt/rocm", "/proc/devices"),
    *("/proc/modules", "/proc/sys/vm", "/proc/version", "/proc/self/maps"),
)
DRIVERS_FILES = ("nvidia*", "dri", "kfd", "accel", "dxg")
# Variables that say where things are; no others are passed on.
VARIABLES = (
    *("PATH", "LD_LIBRARY_PATH", "OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH", "OCL_ICD_FILENAMES"),
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_HOME", "CUDA_PATH"),
    *("POCL_DEVICES", "POCL_MAX_PTHREAD_COUNT", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
)  # fmt: skip
# What a worker imports, wherever its user has it.
PACKAGES = ("msgspec", "numpy", "platformdirs", "pyopencl", "cupy")
MACHINE = "machine"  # in its folder, a root with the system's own files alone
CAPABILITIES_VERSION = 0x20080522


@dataclass(frozen=True)
class Protection:
    """What the system here has of what a worker is held by."""

    landlock: int  # its version; 0: none
    filter: bool

    @property
    def missing(self) -> list[str]:
        """What a kernel could do to its user, in words; nothing, if all is there."""
        found = []
        if not self.landlock:
            found.append("files can be read and written (no Landlock: Linux 5.13 or newer has it)")
        if not self.filter:
            found.append("network, processes and signals are open (no seccomp with a listener)")
        return found


def protection() -> Protection:
    return Protection(landlock.version(), seccomp.available())


def check(trust: bool) -> None:
    """Refuse to run code of strangers where it is not held, unless it is trusted."""
    missing = protection().missing
    if missing and not trust:
        raise TilewrightError(
            f"kernels cannot be isolated here: {'; '.join(missing)}; --trust runs them all the same"
        )


def environment(scratch: Path, kept: Path | None, native: bool) -> dict[str, str]:
    """All that a worker knows of its user's environment."""
    return {
        **{name: os.environ[name] for name in VARIABLES if name in os.environ},
        "PYTHONPATH": os.pathsep.join(_folders_of_packages()),
        "HOME": str(scratch), "TMPDIR": str(scratch), "LC_ALL": "C",
        # Where machine code for GPUs is kept; nothing of this CPU's but what PoCL keeps itself.
        "XDG_CACHE_HOME": str((scratch if native else kept or scratch) / "cache"),
        "POCL_CACHE_DIR": str((kept or scratch) / "kernels"),
        "CUPY_CACHE_DIR": str(scratch / "cupy"), "CUDA_CACHE_PATH": str(scratch / "cuda"),
        "PYOPENCL_NO_CACHE": "1",
        # PoCL's library for the machine's topology opens its root, which is not to be had here.
        "HWLOC_FSROOT": str(scratch / MACHINE), "HWLOC_THISSYSTEM": "1",
        # A thread that is there before the walls are is not behind them.
        "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
        # Each thread's own heap would take its part of the addresses that are allowed.
        "MALLOC_ARENA_MAX": "2",
    }  # fmt: skip


def _folders_of_packages() -> list[str]:
    """Where a worker imports from beyond its Python's own folders: ours first, then those that hold
    what it needs and were named by the user (`pip install --target`)."""
    found = [str(Path(__file__).parent.parent.parent)]
    known = {sys.prefix, sys.base_prefix, *site.getsitepackages(), site.getusersitepackages()}
    for name in PACKAGES:
        spec = find_spec(name)
        if spec is not None and spec.origin is not None:
            folder = Path(spec.origin).parent.parent
            if not any(folder.is_relative_to(each) for each in known):
                found.append(str(folder))
    return list(dict.fromkeys(found))


def furnish(scratch: Path) -> None:
    """What a worker's folder must hold before it starts."""
    (scratch / MACHINE).mkdir()
    for name in ("sys", "proc"):
        (scratch / MACHINE / name).symlink_to(f"/{name}")


def enter(
    scratch: Path, kept: Path | None, native: bool, allowance: Allowance, judge: socket.socket
) -> None:
    """Give all up, for good. The judge gets the filter's other end, where there is a filter."""
    if threads_of(os.getpid()) > 1:
        raise TilewrightError("the worker has threads before it is isolated")
    _limit(allowance, native)
    found = protection()
    ends: list[int] = []
    if sys.platform == "linux":
        _drop_privileges()
        ctypes.CDLL(None).prctl(seccomp.DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if found.landlock:
            ctypes.CDLL(None).prctl(seccomp.NO_NEW_PRIVILEGES, 1, 0, 0, 0)
            landlock.restrict(_rules(scratch, kept, native))
        if found.filter:
            ends.append(seccomp.install(native))
    socket.send_fds(judge, [b"w"], ends)
    judge.close()
    for end in ends:
        os.close(end)


def _limit(allowance: Allowance, native: bool) -> None:
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python would go on
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: allowance.file_bytes,
        resource.RLIMIT_NOFILE: allowance.open_files,
        resource.RLIMIT_CPU: allowance.cpu_seconds,
    }
    if native:  # a GPU's driver reserves addresses for all its memory
        limits[resource.RLIMIT_AS] = allowance.memory_bytes
    for which, most in limits.items():
        hard = resource.getrlimit(which)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (most, most))


def _drop_privileges() -> None:
    """Also of root: whoever could load a module or read everybody's files may do so no more."""
    header, nothing = struct.pack("=Ii", CAPABILITIES_VERSION, 0), bytes(24)
    ctypes.CDLL(None).capset(header, nothing)


def _rules(scratch: Path, kept: Path | None, native: bool) -> Iterator[landlock.Rule]:
    python = {sys.prefix, sys.base_prefix, sys.exec_prefix, *site.getsitepackages()}
    if site.ENABLE_USER_SITE:
        python.add(site.getusersitepackages())
    libraries = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    elsewhere = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)[1:])
    ours = Path(__file__).parent.parent
    yield from landlock.readable(*python, ours, *elsewhere, *SYSTEM, *libraries)
    yield from map(landlock.writable, (scratch, *([kept] if kept else [])))
    yield landlock.device_file("/dev/null")
    if native:
        yield from map(landlock.executable, _linker())
        return
    yield from landlock.readable(*DRIVERS)
    yield landlock.writable("/dev/shm")
    # NVIDIA's driver names its threads there, and gives up if it cannot (580.159, H200).
    yield landlock.overwritable("/proc/self/task")
    for pattern in DRIVERS_FILES:
        yield from map(landlock.device_file, Path("/dev").glob(pattern))


def _linker() -> Iterator[Path]:
    """What PoCL starts, and what loads it."""
    if linker := shutil.which("ld"):
        yield Path(linker).resolve()
        yield from Path("/").glob("lib*/ld-*.so*")
        yield from Path("/").glob("lib/*/ld-*.so*")
