"""Why a worker was stopped, or did not do what it was asked for, in words."""

from __future__ import annotations

import re
import signal
from typing import assert_never

from tilewright.errors import TilewrightError
from tilewright.judge import protocol, seccomp
from tilewright.judge.allowance import Allowance
from tilewright.judge.process import processes_of, threads_of
from tilewright.runtime import DeviceFault
from tilewright.runtime.complaints import CompilerMessage, KernelDoesNotCompile
from tilewright.runtime.dialect import DoesNotFit
from tilewright.terminal import printable

MEANINGS = {
    signal.SIGSEGV: "it touched memory that is not its own",
    signal.SIGBUS: "it touched memory that is not there",
    signal.SIGILL: "it ran into an instruction that there is not",
    signal.SIGFPE: "it divided by zero",
    signal.SIGABRT: "something inside gave up",
    signal.SIGXFSZ: "it wrote a file larger than it may",
    signal.SIGXCPU: "it used more CPU time than it may",
    signal.SIGSYS: "it asked the system as another kind of CPU would",
}
# What a GPU's driver says of a kernel, by the end of the name that CUDA has for it.
FAULTS = {
    "IllegalAddress": "it touched memory that is not its own",
    "MisalignedAddress": "it touched memory at an address that is not aligned",
    "InvalidAddressSpace": "it took one kind of memory for another",
    "InvalidPc": "it jumped to where no code is",
    "IllegalInstruction": "it ran into an instruction that there is not",
    "HardwareStackError": "it ran out of its stack",
    "LaunchFailure": "it was stopped by the GPU",
    "Assert": "an assertion in it failed",
}


LAST_SHOWN = 300  # characters


class Doing:
    """What a worker is at, for those who ask why it is no more: `running` is not waited for yet."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.otherwise = "while starting"

    def __str__(self) -> str:
        if not self.running:
            return self.otherwise
        names = list(dict.fromkeys(self.running))
        few = names if len(names) < 4 else [*names[:2], f"{len(names) - 2} more"]
        return f"while running {', '.join(few)}"


def death(code: int) -> str:
    """What an exit code says."""
    if code >= 0:
        return f"it ended with exit code {code}"
    number = signal.Signals(-code)
    meaning = f", {MEANINGS[number]}" if number in MEANINGS else ""
    return f"it was killed by {number.name}{meaning}"


def fault(words: str) -> str:
    """What a driver said, after what it means: an illegal address and the like."""
    said = " ".join(printable(words).split())[:LAST_SHOWN]
    flat = said.replace("_", "").lower()
    meaning = next((text for name, text in FAULTS.items() if name.lower() in flat), None)
    return f"{meaning} ({said})" if meaning else said


def last_words(said: bytes | bytearray) -> str:
    """The end of what a worker printed; of a path the name, as folders are nobody's business."""
    words = " ".join(printable(said.decode(errors="replace")).split())
    return re.sub(r"(?:/[^\s/'\":]+)+/", "", words)[-LAST_SHOWN:]


def unwelcome(asked: seccomp.Asked, group: int, sealed: bool, allowance: Allowance) -> str | None:
    """What somebody asked the system for who wants out; None of PoCL's own threads and linker.

    A worker that is `sealed` has nothing left to link.
    """
    if asked.name != "clone":
        return asked.name
    flags = asked.arguments[0] & 0xFFFFFFFF
    if flags & seccomp.THREAD and not flags & seccomp.NEW_NAMESPACES:
        many = threads_of(asked.process) > allowance.threads
        return f"more than {allowance.threads} threads" if many else None
    if flags != seccomp.SPAWN or sealed:
        return "another process"
    many = processes_of(group) > allowance.processes
    return f"more than {allowance.processes} processes" if many else None


def error_of(failed: protocol.Failed, allowance: Allowance) -> TilewrightError:
    """The error that the runtime would have raised here."""
    words = printable(failed.words)
    match failed.kind:
        case "MemoryError":
            most = allowance.memory_bytes
            return TilewrightError(f"the worker has no memory left of its {most:,} bytes")
        case "KernelDoesNotCompile" if failed.complaints:
            told = (
                CompilerMessage(each.line, each.column, printable(each.text))
                for each in failed.complaints
            )
            return KernelDoesNotCompile("", "", tuple(told))
        case "DoesNotFit":
            return DoesNotFit(words)
        case "DeviceFault":
            return DeviceFault(words)
        case "TilewrightError" | "KernelDoesNotCompile" | "Lost":
            return TilewrightError(words)
    assert_never(failed.kind)
