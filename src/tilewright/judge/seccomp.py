"""Which system calls a worker may make: a filter that the kernel runs before each of them.

Calls are allowed by name; a few by their arguments. What only an attack would ask for stands still
until the judge, who holds the filter's other end, has said what becomes of it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import signal
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.judge.syscalls import ALLOWED, ARCHITECTURES, DRIVER, JUDGED, TOLD, column, numbers

SECCOMP = {"x86_64": 317, "aarch64": 277}
SET_FILTER, NEW_LISTENER, GET_ACTION = 1, 8, 2
NO_NEW_PRIVILEGES = 38
# What becomes of a call.
KILL, REFUSE, ASK, ALLOW = 0x80000000, 0x00050000, 0x7FC00000, 0x7FFF0000
NOT_PERMITTED, UNKNOWN_CALL = REFUSE | errno.EPERM, REFUSE | errno.ENOSYS
# Instructions of the filter, and where it finds what in the call's description.
LOAD, EQUAL, ANY_BIT, AT_LEAST, RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16
OTHER_ABI = 0x40000000  # x32's numbers start here
OF_THIS_MACHINE = 1  # AF_UNIX
THREAD, NEW_NAMESPACES = 0x00010000, 0x7E020080
SPAWN = 0x4100 | signal.SIGCHLD  # of posix_spawn: shares memory, and waits for the new program
SET_NAME, GET_NAME, NAME_MEMORY, DEATH_SIGNAL = 15, 16, 0x53564D41, 1
# Own, signals and leases of a file: each can send somebody a signal.
FILE_SIGNALS = (8, 10, 15, 1024, 1026)
# Is it a terminal, how large is it, how much is there to read, close it when another is started.
QUESTIONS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
RECEIVE, SEND = 0xC0502100, 0xC0182101
RECEIVED, ANSWER = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
CONTINUE = 1

Instruction = tuple[int, int, int, int]


def available() -> bool:
    """Whether filters, and asking the judge, are there (Linux 5.0), for a CPU that we know."""
    if not sys.platform.startswith("linux") or column() is None:
        return False
    action = ctypes.c_uint32(ASK)
    call = SECCOMP[platform.machine()]
    return int(ctypes.CDLL(None).syscall(call, GET_ACTION, 0, ctypes.byref(action))) == 0


def install(native: bool) -> int:
    """Filter this process from now on; the other end of the filter, for the judge to answer."""
    system = ctypes.CDLL(None, use_errno=True)
    if system.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs is refused")
    program = list(_program(native, os.getpid()))
    packed = b"".join(struct.pack("=HBBI", *each) for each in program)
    held = ctypes.create_string_buffer(packed, len(packed))
    about = struct.pack("HxxxxxxP", len(program), ctypes.addressof(held))
    call = SECCOMP[platform.machine()]
    listener = int(system.syscall(call, SET_FILTER, NEW_LISTENER, about))
    if listener < 0:
        raise OSError(ctypes.get_errno(), "the filter of system calls is refused")
    return listener


def _program(native: bool, process: int) -> Iterator[Instruction]:
    """`native`: kernels are machine code in this process. A GPU's driver may do more than they."""
    yield (LOAD, 0, 0, ARCHITECTURE)
    yield from _if(EQUAL, ARCHITECTURES[platform.machine()], None, KILL)
    yield (LOAD, 0, 0, NUMBER)
    yield from _if(AT_LEAST, OTHER_ABI, KILL)
    for number in numbers(ALLOWED if native else ALLOWED | DRIVER):
        yield from _if(EQUAL, number, ALLOW)
    if not native:
        yield (EQUAL, 0, 4, TOLD["socket"][column() or 0])
        yield _argument(0)
        yield from _if(EQUAL, OF_THIS_MACHINE, ALLOW)
        yield (RETURN, 0, 0, NOT_PERMITTED)
    for number in numbers(TOLD):
        yield from _if(EQUAL, number, ASK if native else NOT_PERMITTED)
    for number, name in numbers(JUDGED).items():
        rest = list(_judged(name, native, process))
        yield (EQUAL, 0, len(rest), number)
        yield from rest
    yield (RETURN, 0, 0, NOT_PERMITTED)


def _judged(name: str, native: bool, process: int) -> Iterator[Instruction]:
    """What depends on arguments; it always comes to an end."""
    match name:
        case "clone":
            yield _argument(0)
            yield from _if(ANY_BIT, NEW_NAMESPACES, ASK)
            if not native:
                yield from _if(ANY_BIT, THREAD, ALLOW)
            yield (RETURN, 0, 0, ASK if native else NOT_PERMITTED)
        case "clone3":  # its arguments lie in memory; libraries then take clone
            yield (RETURN, 0, 0, UNKNOWN_CALL)
        case "fcntl":
            yield _argument(1)
            for command in FILE_SIGNALS:
                yield from _if(EQUAL, command, ASK)
            yield (RETURN, 0, 0, ALLOW)
        case "ioctl":
            yield _argument(1)
            for question in QUESTIONS:
                yield from _if(EQUAL, question, ALLOW)
            yield (RETURN, 0, 0, NOT_PERMITTED if native else ALLOW)
        case "kill" | "tgkill":
            yield _argument(0)
            yield from _if(EQUAL, process, ALLOW)
            yield (RETURN, 0, 0, ASK)
        case "prctl":
            yield _argument(0)
            for option in (SET_NAME, GET_NAME, NAME_MEMORY):
                yield from _if(EQUAL, option, ALLOW)
            yield from _if(EQUAL, DEATH_SIGNAL, ASK)
            yield (RETURN, 0, 0, NOT_PERMITTED)
        case "prlimit64":  # to read one's limits, not to set them
            for half in (0, 4):
                yield _argument(2, half)
                yield from _if(EQUAL, 0, None, NOT_PERMITTED)
            yield (RETURN, 0, 0, ALLOW)
        case "sched_setaffinity":
            yield _argument(0)
            yield from _if(EQUAL, 0, ALLOW)
            yield (RETURN, 0, 0, NOT_PERMITTED)
        case _:
            raise AssertionError(name)


def _if(test: int, value: int, then: int | None, otherwise: int | None = None) -> list[Instruction]:
    """Return one thing if a test holds, or another if it does not, or go on."""
    if then is not None:
        assert otherwise is None
        return [(test, 0, 1, value), (RETURN, 0, 0, then)]
    assert otherwise is not None
    return [(test, 1, 0, value), (RETURN, 0, 0, otherwise)]


def _argument(index: int, half: int = 0) -> Instruction:
    return (LOAD, 0, 0, ARGUMENTS + 8 * index + half)


@dataclass(frozen=True)
class Asked:
    """A system call that stands still until it is answered."""

    identity: int
    process: int
    name: str
    arguments: tuple[int, ...]


def receive(listener: int) -> Asked | None:
    """What is asked; None if whoever asked is gone."""
    space = bytearray(RECEIVED.size)
    try:
        fcntl.ioctl(listener, RECEIVE, space)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EINTR):
            return None
        raise
    identity, process, _, number, _, _, *arguments = RECEIVED.unpack(space)
    names = {**numbers(TOLD), **numbers(JUDGED)}
    return Asked(identity, process, names.get(number, f"number {number}"), tuple(arguments))


def answer(listener: int, asked: Asked, allowed: bool) -> None:
    error, flags = (0, CONTINUE) if allowed else (-errno.EPERM, 0)
    try:
        fcntl.ioctl(listener, SEND, ANSWER.pack(asked.identity, 0, error, flags))
    except OSError as refused:
        if refused.errno != errno.ENOENT:  # it is gone meanwhile
            raise
