"""Programs and kernels of OpenCL: built, checked against what the device can hold, and asked which
of their arguments they write to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from tilewright.runtime import opencl, pocl_builds
from tilewright.runtime.complaints import (
    ANYTHING,
    CompilerRefused,
    check_parameters,
    in_users_lines,
    no_such_kernel,
)
from tilewright.runtime.dialect import DoesNotFit, Source
from tilewright.runtime.pocl import is_pocl
from tilewright.trace import at_start, calling

# Kernels are OpenCL C of 2011, and say of their arguments which ones they only read.
BUILD_OPTIONS = "-cl-std=CL1.2 -cl-kernel-arg-info"


@dataclass(frozen=True)
class Built:
    """A kernel, and which of its arguments it may write to."""

    kernel: Any
    writes: tuple[bool, ...]


def built(index: int, source: Source) -> Built:
    """For the device of that number; DoesNotFit where it has no room for it."""
    kernel = _kernel(index, source)
    _check_room(kernel, opencl.devices()[index], source)
    return Built(kernel, tuple(map(partial(_may_write, kernel), range(kernel.num_args))))


@lru_cache(maxsize=1000)
def program(index: int, text: str, ours: bool = False) -> Any:
    """Compiled; `ours`, if no user wrote it."""
    context = opencl.context(index)
    with calling(at_start(), "clBuildProgram"):
        if ours and is_pocl(opencl.devices()[index]):
            return pocl_builds.build(opencl.load(), context, text, BUILD_OPTIONS)
        return opencl.load().Program(context, text).build(options=BUILD_OPTIONS)


def _kernel(index: int, source: Source) -> Any:
    cl = opencl.load()
    try:
        whole = program(index, source.complete, ours=source.file is None)
    except cl.RuntimeError as error:
        if source.file is None:
            raise
        refused = CompilerRefused(f"{source.name} does not compile", str(error))
        raise in_users_lines(source, refused) from error
    if source.file is None:
        return cl.Kernel(whole, source.name)
    names = whole.kernel_names.split(";")
    if source.name not in names:
        raise no_such_kernel(source.name, names)
    kernel = cl.Kernel(whole, source.name)
    taken = "".join(map(partial(_taken, kernel), range(kernel.num_args)))
    check_parameters(source, taken, "*" if source.constant_floats else "")
    return kernel


def _taken(kernel: Any, argument: int) -> str:
    """What a kernel takes: `*` a buffer, `i` a whole number, `?` something else.

    A compiler that does not say is believed to take anything.
    """
    cl = opencl.load()
    info, address = cl.kernel_arg_info, cl.kernel_arg_address_qualifier
    where = _said(kernel, argument, info.ADDRESS_QUALIFIER)
    if where is None:
        return ANYTHING
    if where in (address.GLOBAL, address.CONSTANT):
        return "*"
    return "i" if _said(kernel, argument, info.TYPE_NAME) in ("int", "uint") else "?"


def _check_room(kernel: Any, device: Any, source: Source) -> None:
    """DoesNotFit if the compiler has made more of it than the device can hold at a time."""
    cl = opencl.load()
    facts = cl.kernel_work_group_info
    for needed, given, unit in (
        (
            math.prod(source.block),
            kernel.get_work_group_info(facts.WORK_GROUP_SIZE, device),
            "threads in a block",
        ),
        (
            kernel.get_work_group_info(facts.LOCAL_MEM_SIZE, device),
            device.local_mem_size,
            "bytes of shared memory",
        ),
    ):
        if needed > given:
            raise DoesNotFit(
                f"{source.name}, as compiled for {device.name.strip()}, needs {needed:,} "
                f"{unit} and can have {given:,}"
            )


def _may_write(kernel: Any, argument: int) -> bool:
    cl = opencl.load()
    found = _said(kernel, argument, cl.kernel_arg_info.TYPE_QUALIFIER)
    return found is None or not found & cl.kernel_arg_type_qualifier.CONST


def _said(kernel: Any, argument: int, what: Any) -> Any:
    """Of an argument; None from a compiler that does not say."""
    cl = opencl.load()
    try:
        return kernel.get_arg_info(argument, what)
    except cl.Error as error:
        if error.code != cl.status_code.KERNEL_ARG_INFO_NOT_AVAILABLE:
            raise
        return None
