"""CUDA's run-time compiler by itself: text in, machine code out.

Run as a program it answers one question after the other, from standard input to standard output,
until the input ends. NVRTC compiles one text at a time in a process, however many threads ask
(13.4: two threads took as long as one): kernels are compiled side by side in processes. This file
is run by its path and needs nothing of the package, so that such a process is there in 0.1 s.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, NamedTuple

# What comes out of the driver's own cache has no log, and so no account.
OPTIONS = ("--no-cache", "--std=c++17", "--ptxas-options=-v")
# Of a text that names its file: other tools then find its lines. The machine code is the same.
LINES = "--generate-line-info"
# Of a text whose products are in an order that keeps registers' banks apart. At its usual level the
# compiler takes what is ready first: large fully connected layers take 3 % longer in fp32 (H200,
# NVRTC 13.2, 2026-11-18).
ORDERED, IN_ORDER = "#define TW_IN_ORDER", "--ptxas-options=-O1"
USUAL = ("/usr/local/cuda", "/opt/cuda")  # where toolkits are installed


class Answer(NamedTuple):
    """What the compiler said, and machine code if it could make any."""

    log: str
    cubin: bytes | None


class Refused(Exception):
    """NVRTC itself does not do what it is asked for."""


def options_of(text: str) -> tuple[str, ...]:
    named, includes = "\n#line " in text, re.search(r"^\s*#\s*include\b", text, re.M) is not None
    options = (*OPTIONS, IN_ORDER) if f"\n{ORDERED} " in text else OPTIONS
    if not named and not includes:
        return (*options, *lean())
    return (*options, *((LINES,) if named else ()), *(headers() if includes else ()))


@cache
def lean() -> tuple[str, ...]:
    """For texts of our own that include nothing: without textures and launches from the device, a
    sixth of what NVRTC does for any text, however short, is left out. Known since CUDA 12.4."""
    from cuda.bindings import nvrtc

    _, *version = nvrtc.nvrtcVersion()
    return ("--minimal",) if tuple(version) >= (12, 4) else ()


@cache
def headers() -> tuple[str, ...]:
    """Where CUDA's own are (cuda_fp16.h, mma.h): of its packages for Python, or of a toolkit."""
    packages = find_spec("nvidia")
    inside = packages.submodule_search_locations if packages is not None else None
    roots = [Path(each) / kind for each in inside or () for kind in ("cu13", "cuda_runtime")]
    named = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), *USUAL)
    roots += [Path(each) for each in named if each]
    # The package for Python has mma.h, but not what that includes.
    for wanted in (("cuda_fp16.h", "crt/mma.h"), ("cuda_fp16.h",)):
        for root in roots:
            folder = root / "include"
            if all((folder / name).exists() for name in wanted):
                folder = folder.resolve()
                return f"--include-path={folder}", f"--include-path={folder / 'cccl'}"
    return ()


def translate(name: str, text: str, architecture: str) -> Answer:
    from cuda.bindings import nvrtc

    _, program = _check(nvrtc.nvrtcCreateProgram(text.encode(), f"{name}.cu".encode(), 0, [], []))
    options = [
        f"--gpu-architecture={architecture}".encode(),
        *(o.encode() for o in options_of(text)),
    ]
    status, *_ = nvrtc.nvrtcCompileProgram(program, len(options), options)
    _, size = _check(nvrtc.nvrtcGetProgramLogSize(program))
    # The compiler writes into these bytes. Python keeps one object for all single bytes of a kind,
    # so an empty log must land in the zero byte, where its end mark changes nothing.
    log = bytes(size)
    _check(nvrtc.nvrtcGetProgramLog(program, log))
    cubin = None
    if status == nvrtc.nvrtcResult.NVRTC_SUCCESS:
        _, size = _check(nvrtc.nvrtcGetCUBINSize(program))
        cubin = bytes(size)
        _check(nvrtc.nvrtcGetCUBIN(program, cubin))
    _check(nvrtc.nvrtcDestroyProgram(program))
    return Answer(log.rstrip(b"\0").decode(errors="replace"), cubin)


def ask(to: IO[bytes], answers: IO[bytes], question: tuple[str, str, str]) -> Answer | None:
    """What a process makes of a kernel's name, text and architecture; None if it has ended."""
    try:
        to.write(json.dumps(question).encode() + b"\n")
        to.flush()
        line = answers.readline()
        if not line:
            return None
        log, size = json.loads(line)
        if size is None:
            return Answer(log, None)
        cubin = answers.read(size)
        return Answer(log, cubin) if len(cubin) == size else None
    except (BrokenPipeError, ValueError):  # in the middle of a line
        return None


def serve(questions: IO[bytes], answers: IO[bytes]) -> None:
    for line in questions:
        log, cubin = translate(*json.loads(line))
        size = None if cubin is None else len(cubin)
        answers.write(json.dumps([log, size]).encode() + b"\n" + (cubin or b""))
        answers.flush()


def _check(result: tuple[Any, ...]) -> tuple[Any, ...]:
    if result[0].value:
        raise Refused(f"CUDA compiler NVRTC: {result[0].name}")
    return result


if __name__ == "__main__":
    # Ctrl-C is for the one who asks, and ends this by ending the questions.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # nobody waits for the answer any more
    if path := sys.stdin.buffer.readline():
        sys.path[:] = json.loads(path)
        serve(sys.stdin.buffer, sys.stdout.buffer)
