"""The filter alone: a process behind it asks for everything that the judge should hear of."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
from select import select

import pytest

from tilewright.judge import seccomp
from tilewright.judge.syscalls import ALLOWED, DRIVER, JUDGED, TOLD, column, numbers

pytestmark = pytest.mark.skipif(not seccomp.available(), reason="needs seccomp with a listener")

# Goes behind the filter, hands over its other end, and asks for each call of its arguments.
CHILD = """
import ctypes, socket, sys
from tilewright.judge import seccomp
system = ctypes.CDLL(None, use_errno=True)
judge = socket.socket(fileno=int(sys.argv[1]))
socket.send_fds(judge, [b"w"], [seccomp.install(sys.argv[2] == "native")])
for call in sys.argv[3:]:
    number, *given = map(int, call.split(","))
    result = system.syscall(number, *map(ctypes.c_long, given))
    print(result, ctypes.get_errno())
"""
OWN = column() or 0
EPERM, ENOSYS, EINVAL = 1, 38, 22


def behind(kind: str, calls: list[tuple[int, ...]]) -> tuple[list[str], list[str]]:
    """What the judge was asked, with all of it refused, and what the calls gave."""
    ours, theirs = socket.socketpair()
    texts = [",".join(map(str, call)) for call in calls]
    with ours, theirs, subprocess.Popen(
        [sys.executable, "-c", CHILD, str(theirs.fileno()), kind, *texts],
        pass_fds=[theirs.fileno()], stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        _, (listener,), _, _ = socket.recv_fds(ours, 1, 1)
        asked = []
        while process.poll() is None:
            if select([listener], [], [], 0.05)[0] and (found := seccomp.receive(listener)):
                asked.append(found.name)
                seccomp.answer(listener, found, allowed=False)
        os.close(listener)
        assert process.stdout is not None
        return asked, process.stdout.read().splitlines()


def test_whatever_reaches_out_is_told():
    told = numbers(TOLD)
    asked, results = behind("native", [(number, 0, 0, 0, 0, 0) for number in told])
    assert asked == list(told.values())
    assert results == [f"-1 {EPERM}"] * len(told)


def test_calls_are_judged_by_their_arguments():
    call = {name: each[OWN] for name, each in JUDGED.items()}
    process = os.getpid()
    room = ctypes.create_string_buffer(16)
    expected = {
        (call["kill"], process, 0): "kill",
        (call["kill"], -1, 0): "kill",
        (call["tgkill"], process, process, 0): "tgkill",
        (call["clone"], 17): "clone",
        (call["clone"], 0x10000 | 0x10000000): "clone",  # a thread with its own users
        (call["prctl"], 1, 0): "prctl",  # to outlive the judge
        (call["fcntl"], 0, 8, process): "fcntl",  # to have the judge signalled
    }
    refused = {
        (call["clone3"], 0, 0): ENOSYS,
        (call["prctl"], 4, 0): EPERM,
        (call["ioctl"], 0, 0x5412, 0): EPERM,  # to type at the user's terminal
        (call["prlimit64"], 0, 7, ctypes.addressof(room), 0): EPERM,
        (call["sched_setaffinity"], process, 8, 0): EPERM,
    }
    asked, results = behind("native", [*expected, *refused])
    assert asked == list(expected.values())
    assert results[len(expected) :] == [f"-1 {error}" for error in refused.values()]


def test_a_driver_may_fail_quietly():
    call = {name: each[OWN] for name, each in TOLD.items()}
    tried = [(call["socket"], 2, 1, 0), (call["ptrace"], 0), (call["vfork"],), (call["connect"],)]
    asked, results = behind("driver", [each for each in tried if each[0] >= 0])
    assert asked == [] and set(results) == {f"-1 {EPERM}"}
    _, (result,) = behind("driver", [(call["socket"], 1, 1, 0)])  # of this machine's own kind
    assert int(result.split()[0]) > 0


def test_no_call_is_in_two_tables():
    names = [*ALLOWED, *TOLD, *JUDGED]
    assert len(set(names)) == len(names)
    every = ALLOWED | TOLD | JUDGED
    assert all(every.get(name, numbers) == numbers for name, numbers in DRIVER.items())
    for own in (0, 1):
        found = [each[own] for each in (every | DRIVER).values() if each[own] >= 0]
        assert len(set(found)) == len(found)
