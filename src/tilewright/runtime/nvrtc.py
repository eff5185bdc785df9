"""CUDA's run-time compiler: kernels into machine code, with what they take. Needs no GPU.

What was compiled is kept on disk (`tilewright.store`), and several kernels are compiled side by
side (`tilewright.runtime.compilers`).
"""

from __future__ import annotations

import atexit
import re
import struct
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from tilewright.environment import cpu_cores
from tilewright.errors import TilewrightError
from tilewright.runtime.compilers import Pool, Question, Translate
from tilewright.runtime.complaints import (
    CompilerRefused,
    check_parameters,
    in_users_lines,
    no_such_kernel,
)
from tilewright.runtime.dialect import Source
from tilewright.runtime.nvrtc_worker import Refused, options_of, translate
from tilewright.store import key_of, open_store

# Of the notes on a kernel in its machine code: one with a size, and one on a parameter.
SIZED_VALUE, KERNEL_PARAMETER = 0x04, 0x17
INSTALL = "pip install 'tilewright[cuda]'"


@dataclass(frozen=True)
class Compiled:
    """Machine code for one architecture, and the compiler's account of one kernel in it."""

    cubin: bytes
    registers: int  # of a thread
    spilled_bytes: int  # of a thread, stored to and loaded from local memory
    stack_bytes: int
    shared_bytes: int
    constant_bytes: int  # of arrays in constant memory
    entry: str = ""  # what the kernel is called there


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
    """Compile one kernel for an architecture like sm_90, unless that was done before."""
    question = (name, text, architecture)
    ahead = _ahead.pop(question, None)
    # What still waits for its turn is needed now: this process compiles, too.
    if ahead is None or ahead.cancel():
        return _compile(translate, question)
    return ahead.result()


def compile_source(source: Source, architecture: str) -> Compiled:
    """Compile a kernel of the dialect or in CUDA C; what is wrong is told at its user's lines."""
    try:
        compiled = compile_cubin(source.name, source.complete, architecture)
    except CompilerRefused as error:
        raise in_users_lines(source, error) from error
    if source.parameters is not None:
        check_parameters(source, parameters(compiled))
    if compiled.constant_bytes < 4 * source.constant_floats:
        raise TilewrightError(
            f"{source.file or source.name}: its constant memory is to hold "
            f"{4 * source.constant_floats:,} bytes, and {compiled.constant_bytes:,} are declared"
        )
    return compiled


def parameters(compiled: Compiled) -> str:
    """What a kernel takes, as its machine code says: `*` 8 bytes, `i` 4, `?` something else."""
    info = _section(compiled.cubin, f".nv.info.{compiled.entry}")
    found: dict[int, str] = {}
    place = 0
    while place + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, place)
        place += 4
        if form != SIZED_VALUE:
            continue
        if attribute == KERNEL_PARAMETER:
            ordinal, packed = struct.unpack_from("<4xH2xI", info, place)
            found[ordinal] = {8: "*", 4: "i"}.get(packed >> 18, "?")
        place += size
    return "".join(kind for _, kind in sorted(found.items()))


def compile_ahead(questions: Iterable[Question]) -> list[Future[Compiled]]:
    """Begin to compile kernels that `compile_cubin` will be asked for, each on a core."""
    begun = []
    for question in questions:
        if question not in _ahead:
            _ahead[question] = _pool().submit(question)
        begun.append(_ahead[question])
    return begun


def at_most(compilers: int) -> None:
    """So many at a time, where others are at work on the same cores."""
    _pool().most = compilers


def _compile(translate: Translate, question: Question) -> Compiled:
    """From the store, or compiled and kept there."""
    name, _, architecture = question
    store, key = open_store("cubins"), _key(question)
    if (kept := store.read(key)) is not None:
        log, cubin = kept.split(b"\0", 1)
        return _account(name, architecture, log.decode(), cubin)
    try:
        answer = translate(*question)
    except Refused as error:
        raise TilewrightError(str(error)) from error
    if answer.cubin is None:
        words = " ".join(answer.log.split())
        raise CompilerRefused(f"CUDA compiler, {name} for {architecture}: {words}", answer.log)
    made = _account(name, architecture, answer.log, answer.cubin)
    store.keep(key, answer.log.encode() + b"\0" + answer.cubin)
    return made


def _key(question: Question) -> str:
    """Of all that machine code depends on."""
    return key_of(*_compiler(), *options_of(question[1]), *question)


@cache
def _compiler() -> tuple[str, str]:
    """NVRTC's version, and that of its package, if it has one: it tells corrections apart."""
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    try:
        package = version("nvidia-cuda-nvrtc")
    except PackageNotFoundError:
        package = ""
    return f"{major}.{minor}", package


# What was begun and not asked for yet.
_ahead: dict[Question, Future[Compiled]] = {}


@cache
def _pool() -> Pool[Compiled]:
    pool = Pool(_compile, cpu_cores())
    atexit.register(pool.end)
    return pool


def _account(name: str, architecture: str, words: str, cubin: bytes) -> Compiled:
    """Machine code with what the compiler's log says of it."""
    if "registers" not in words:
        raise TilewrightError(f"CUDA's compiler gives no account of {name} for {architecture}")
    accounts = _accounts(words)
    entry = next((each for each in accounts if _is(each, name)), None)
    if entry is None:
        raise no_such_kernel(name, accounts)

    def figure(pattern: str) -> int:
        return sum(map(int, re.findall(pattern, accounts[entry])))

    return Compiled(
        cubin,
        registers=figure(r"Used (\d+) registers"),
        spilled_bytes=figure(r"(\d+) bytes spill"),
        stack_bytes=figure(r"(\d+) bytes stack frame"),
        shared_bytes=figure(r"(\d+) bytes smem"),
        # The log has it for older architectures only.
        constant_bytes=len(_section(cubin, ".nv.constant3")),
        entry=entry,
    )


def _accounts(words: str) -> dict[str, str]:
    """What the log says of each kernel."""
    parts = re.split(r"Compiling entry function '(\S+)'", words)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _is(entry: str, name: str) -> bool:
    """Whether machine code has a kernel by its own name, or by what C++ makes of it."""
    return entry == name or entry.startswith(f"_Z{len(name)}{name}")


def _section(cubin: bytes, name: str) -> bytes:
    """A section of machine code, which is a 64-bit ELF file; empty if it has none."""
    (table,) = struct.unpack_from("<Q", cubin, 40)
    entry, count, names_index = struct.unpack_from("<HHH", cubin, 58)
    headers = [struct.unpack_from("<I20xQQ", cubin, table + i * entry) for i in range(count)]
    names = headers[names_index][1]
    wanted = name.encode() + b"\0"
    for place, start, size in headers:
        if cubin.startswith(wanted, names + place):
            return cubin[start : start + size]
    return b""
