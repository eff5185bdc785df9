"""OpenCL devices of any maker, through pyopencl: which are here, what they can hold, or why there
is none; and the CPU itself through PoCL. What runs on them is `opencl_runtime`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

from tilewright.files import cache_home
from tilewright.runtime import GpuRuntime
from tilewright.runtime.device import OPENCL, Device
from tilewright.runtime.dialect import (
    USUAL_BLOCK,
    USUAL_CONSTANT_BYTES,
    USUAL_SHARED_BYTES,
    USUAL_THREADS,
    Block,
    Limits,
)
from tilewright.runtime.inventory import Found
from tilewright.runtime.pocl import check_pocl, is_installed, is_pocl
from tilewright.runtime.pocl_kernels import KERNELS, keep_kernels
from tilewright.runtime.pocl_processor import name_processor
from tilewright.trace import at_start, calling

INSTALL = "pip install 'tilewright[opencl]'"
# Checks kernels, a thousand times slower than a device: used only when named.
SIMULATORS = ("Oclgrind",)
FINE_GRAIN_BUFFER = 2


def missing(device: Device) -> str | None:
    """Why this OpenCL device cannot be used, and how to get it; None if it can."""
    if reason := unusable():
        return reason
    found = devices()
    # A simulator is never what somebody meant who did not name it.
    if not found or (device.number is None and is_simulator(found[0])):
        name = found[0].name.strip() if found else ""
        only = f" but the simulator {name}, which must be named (opencl:0)" if found else ""
        return f"no OpenCL device found{only}; {_how_to_get_one()}"
    if device.index >= len(found):
        return f"there are {len(found)} OpenCL devices, numbered from 0"
    if is_pocl(found[device.index]):
        return check_pocl()
    return None


def open_runtime(device: Device, memory: str) -> GpuRuntime:
    from tilewright.runtime.opencl_runtime import OpenClRuntime

    return OpenClRuntime(device, memory == "managed")


def inventory() -> Iterator[Found]:
    """Every OpenCL device; before them, why there is none that works without being named."""
    found = [] if unusable() else devices()
    if not found or is_simulator(found[0]):
        yield Found(str(OPENCL), problem=missing(OPENCL))
    for index, each in enumerate(found):
        # A simulator is used only when it is named with its number.
        device = Device("opencl", index) if index or is_simulator(each) else OPENCL
        most = limits(each)
        yield Found(
            str(device),
            each.name.strip(),
            problem=missing(device),
            simulator=is_simulator(each),
            processors=most.processors,
            memory_bytes=most.memory_bytes,
            limits=most,
            managed=shares_memory(each),
            # The version reads "OpenCL 3.0" and then whatever the maker likes to add.
            details=f"{each.platform.name.strip()}, {' '.join(each.version.split()[:2])}, "
            f"driver {each.driver_version.strip()}",
        )


def _how_to_get_one() -> str:
    if is_installed():
        why = f": {notice}" if (notice := kept_kernels()) else ""
        return f"PoCL is installed and would run on the CPU, but does not start here{why}"
    return f"one that runs on the CPU comes with {INSTALL}"


def unusable() -> str | None:
    """Why pyopencl itself cannot be used, or None."""
    if find_spec("pyopencl") is None:
        return f"pyopencl not installed: {INSTALL}"
    try:
        load()
    except Exception as error:
        return f"pyopencl does not load ({' '.join(str(error).split())}): {INSTALL}"
    return None


@cache
def load() -> Any:
    """pyopencl, without its own cache of programs: compilers keep what they built themselves, and
    that cache fails where its folder cannot be made. PoCL keeps its kernels among our files."""
    os.environ.setdefault("PYOPENCL_NO_CACHE", "1")
    kept_kernels()
    import pyopencl

    return pyopencl


@cache
def kept_kernels() -> str | None:
    """Done before PoCL is loaded: what its user should know of where it keeps kernels."""
    return keep_kernels(cache_home() / KERNELS)


@cache
def devices() -> list[Any]:
    """Every OpenCL device: GPUs first, then the rest, simulators last."""
    cl = load()
    found: list[Any] = []
    try:
        with calling(at_start(), "clGetPlatformIDs"):
            platforms = cl.get_platforms()
    except cl.Error:  # no platform at all is an error to OpenCL
        return []
    for platform in platforms:
        try:
            with calling(at_start(), "clGetDeviceIDs"):
                found += platform.get_devices()
        except cl.Error:  # and so is one whose devices are not here
            continue

    for device in filter(is_pocl, found):
        name_processor(device)

    def order(device: Any) -> int:
        if is_simulator(device):
            return 2
        return 0 if device.type & cl.device_type.GPU else 1

    return sorted(found, key=order)


def is_simulator(device: Any) -> bool:
    return any(name in device.platform.name for name in SIMULATORS)


def shares_memory(device: Any) -> bool:
    """Whether kernels and the host can work on the same memory, as `managed` does."""
    try:
        return bool(device.svm_capabilities & FINE_GRAIN_BUFFER)
    except load().Error:  # asked of a device from before OpenCL 2.0
        return False


def limits(device: Any) -> Limits:
    return Limits(
        threads=min(device.max_work_group_size, USUAL_THREADS),
        shared_bytes=min(device.local_mem_size, USUAL_SHARED_BYTES),
        constant_bytes=min(device.max_constant_buffer_size, USUAL_CONSTANT_BYTES),
        memory_bytes=device.global_mem_size,
        processors=device.max_compute_units,
        block=_smallest(device.max_work_item_sizes, USUAL_BLOCK),
    )


def device_limits(device: Device) -> Limits:
    return limits(devices()[device.index])


def _smallest(here: Sequence[int], usual: Block) -> Block:
    x, y, z = map(min, here, usual)
    return x, y, z


@cache
def context(index: int) -> Any:
    with calling(at_start(), "clCreateContext"):
        return load().Context([devices()[index]])
