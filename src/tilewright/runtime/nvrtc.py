"""CUDA's run-time compiler: kernels into machine code, with what they take. Needs no GPU."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from tilewright.errors import TilewrightError

INSTALL = "pip install 'tilewright[cuda]'"


@dataclass(frozen=True)
class Compiled:
    """Machine code for one architecture, and the compiler's account of it."""

    cubin: bytes
    registers: int  # of a thread
    spilled_bytes: int  # of a thread, stored to and loaded from local memory
    stack_bytes: int
    shared_bytes: int
    constant_bytes: int  # of arrays in constant memory


def missing() -> str | None:
    """Why nothing can be compiled for CUDA here, or None."""
    try:
        found = find_spec("cuda.bindings") is not None
    except ModuleNotFoundError:
        found = False
    if not found:
        return f"cuda-bindings not installed: {INSTALL}"
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except Exception as error:
        return f"CUDA's compiler NVRTC does not load ({error}): {INSTALL}"
    return None


@lru_cache(maxsize=2000)
def compile_cubin(name: str, text: str, architecture: str) -> Compiled:
    """Compile one kernel for an architecture like sm_90."""
    from cuda.bindings import nvrtc

    _, program = _check(nvrtc.nvrtcCreateProgram(text.encode(), f"{name}.cu".encode(), 0, [], []))
    # What comes out of the driver's own cache has no log, and so no account.
    options = ["--no-cache", f"--gpu-architecture={architecture}", "--std=c++17"]
    options.append("--ptxas-options=-v")
    status, *_ = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
    _, size = _check(nvrtc.nvrtcGetProgramLogSize(program))
    # The compiler writes into these bytes. Python keeps one object for all single bytes of a kind,
    # so an empty log must land in the zero byte, where its end mark changes nothing.
    log = bytes(size)
    _check(nvrtc.nvrtcGetProgramLog(program, log))
    words = log.rstrip(b"\0").decode(errors="replace")
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise TilewrightError(
            f"CUDA compiler, {name} for {architecture}: {' '.join(words.split())}"
        )
    _, size = _check(nvrtc.nvrtcGetCUBINSize(program))
    cubin = bytes(size)
    _check(nvrtc.nvrtcGetCUBIN(program, cubin))
    _check(nvrtc.nvrtcDestroyProgram(program))

    if "registers" not in words:
        raise TilewrightError(f"CUDA's compiler gives no account of {name} for {architecture}")

    def figure(pattern: str) -> int:
        return sum(map(int, re.findall(pattern, words)))

    return Compiled(
        cubin,
        registers=figure(r"Used (\d+) registers"),
        spilled_bytes=figure(r"(\d+) bytes spill"),
        stack_bytes=figure(r"(\d+) bytes stack frame"),
        shared_bytes=figure(r"(\d+) bytes smem"),
        # The log has it for older architectures only.
        constant_bytes=_section_bytes(cubin, ".nv.constant3"),
    )


def _section_bytes(cubin: bytes, name: str) -> int:
    """The size of a section of machine code, which is a 64-bit ELF file; 0 if it has none."""
    (table,) = struct.unpack_from("<Q", cubin, 40)
    entry, count, names_index = struct.unpack_from("<HHH", cubin, 58)
    headers = [struct.unpack_from("<I20xQQ", cubin, table + i * entry) for i in range(count)]
    names = headers[names_index][1]
    wanted = name.encode() + b"\0"
    return sum(size for place, _, size in headers if cubin.startswith(wanted, names + place))


def _check(result: tuple[Any, ...]) -> tuple[Any, ...]:
    if result[0].value:
        raise TilewrightError(f"CUDA compiler NVRTC: {result[0].name}")
    return result
