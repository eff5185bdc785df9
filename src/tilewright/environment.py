"""The fingerprint of a machine, kept with every figure: hardware, system, libraries, time."""

from __future__ import annotations

import ctypes
import datetime
import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from tilewright import __version__
from tilewright.command import command
from tilewright.results.record import Environment, Gpu

IMPORTED = time.monotonic()
_waited = [0.0]  # seconds in which this process had nothing to do yet
LIBRARIES = (
    *("numpy", "numba", "llvmlite", "onnxruntime", "openvino", "onnx", "torch", "safetensors"),
    "pillow",
    *(
        "pyopencl",
        "pocl-binary-distribution",
        "cupy-cuda13x",
        "cuda-bindings",
        "cupti-python",
        "jax",
    ),
)


def fingerprint() -> Environment:
    """Everything about this machine that a figure may depend on."""
    return Environment(
        tilewright=__version__,
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        command=command(),
        cpu=cpu_model(),
        cores=cpu_cores(),
        memory_bytes=memory_bytes(),
        gpus=gpus(),
        system=platform.platform(),
        python=platform.python_version(),
        libraries={name: version for name in LIBRARIES if (version := _version(name))},
    )


@cache
def cpu_model() -> str:
    """The CPU's name as its maker gave it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def cpu_cores() -> int:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class GpuState:
    """A GPU at one moment: its clock, and what held it back."""

    megahertz: int
    throttled: tuple[str, ...]


# What the driver calls clocks event reasons, as bits; an idle GPU or a clock that was set are
# nothing that holds a kernel back unexpectedly.
THROTTLED = {
    0x4: "power cap", 0x8: "hardware slowdown", 0x20: "temperature", 0x40: "temperature",
    0x80: "power brake",
}  # fmt: skip
SM_CLOCK = 1  # NVML_CLOCK_SM
# Drivers of before 2023 know the second name only.
REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")


def gpu_states() -> list[GpuState]:
    """Of every NVIDIA GPU, now; none where there is no driver, or it does not tell.

    The driver's library is asked, in this process: on a machine with an H200 (2026-11-16) the same
    work of the host took 1.4 ms, and 2.9 ms right after nvidia-smi had been waited for. Perhaps as
    that is a process, which takes a core and its caches; the reason was not looked for.
    """
    library = _nvml()
    if library is None:
        return []
    states, count = [], ctypes.c_uint()
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    reasons_of = next((getattr(library, name) for name in REASONS if hasattr(library, name)), None)
    if reasons_of is None:
        return []
    for index in range(count.value):
        handle, clock, bits = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_ulonglong()
        refused = (
            library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
            or library.nvmlDeviceGetClockInfo(handle, SM_CLOCK, ctypes.byref(clock))
            or reasons_of(handle, ctypes.byref(bits))
        )
        if not refused:
            found = dict.fromkeys(words for bit, words in THROTTLED.items() if bits.value & bit)
            states.append(GpuState(clock.value, tuple(found)))
    return states


@cache
def _nvml() -> ctypes.CDLL | None:
    """The driver's library for questions about GPUs, if there is a driver."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return None if library.nvmlInit_v2() else library


@cache
def gpus() -> tuple[Gpu, ...]:
    """NVIDIA GPUs as the driver's own tool names them; none where the tool is absent."""
    return tuple(Gpu(*row) for row in _nvidia_smi("name", "driver_version", "memory.total"))


def _nvidia_smi(*fields: str) -> list[list[str]]:
    """A row of fields for every GPU; none where the tool is absent or knows no GPU."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    query = subprocess.run(
        [tool, f"--query-gpu={','.join(fields)}", "--format=csv,noheader"],
        capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    if query.returncode != 0:
        return []
    return [line.split(", ") for line in query.stdout.splitlines() if line.strip()]


@dataclass(frozen=True)
class Usage:
    """What this process took of the machine since it was started, as `time` shows it."""

    user_seconds: float
    system_seconds: float
    elapsed_seconds: float
    page_faults: int


def usage() -> Usage:
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    faults = used.ru_minflt + used.ru_majflt
    return Usage(used.ru_utime, used.ru_stime, _elapsed(), faults)


def waited(seconds: float) -> None:
    """So long this process was there before it was asked for anything: that is nobody's time."""
    _waited[0] += seconds


def _elapsed() -> float:
    """Seconds since this process was started; where the system does not say, since Tilewright was
    imported.
    """
    status = Path("/proc/self/stat")
    if not status.is_file():
        return time.monotonic() - IMPORTED - _waited[0]
    # The name before it may have blanks and brackets in it.
    ticks = int(status.read_text().rpartition(")")[2].split()[19])
    started = ticks / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started - _waited[0]


def peak_memory_bytes() -> int:
    """The most memory this process has held at once."""
    status = Path("/proc/self/status")
    if status.is_file():
        # Unlike getrusage's figure, this one does not start from the parent process's size.
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def memory_bytes() -> int:
    """The memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@cache  # to look through all that is installed takes 10 ms, and a process keeps what it imported
def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None
