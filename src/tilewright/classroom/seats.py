"""Where one judging happens at a time: a process with a device, that can be lost and replaced.

The process at the other end has no access to the class's file; what it says comes as JSON through
a pipe. It is killed with whoever started it.
"""

from __future__ import annotations

import ctypes
import math
import multiprocessing
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Protocol, TypeVar

import msgspec

from tilewright.classroom.course import Task
from tilewright.classroom.judging import Judge, Tell
from tilewright.classroom.locks import device_turn
from tilewright.classroom.marks import Where
from tilewright.errors import TilewrightError
from tilewright.judge.reasons import death
from tilewright.judge.seccomp import DEATH_SIGNAL
from tilewright.results.grade import Judged
from tilewright.runtime.device import Device

BEAT_SECONDS = 1.0
SILENT_SECONDS = 120.0  # until a process that says nothing is given up
OPEN_SECONDS = 600.0  # for networks and images to be read
# For all of a judging, which has limits for each of its steps: so many times the proof's, and more.
PROOFS, MORE_SECONDS = 4, 600.0
GONE_SECONDS = 30.0


class Lost(Exception):
    """The process is gone or was given up, and why; `begun` unless it was still before the work."""

    def __init__(self, words: str, begun: bool = True) -> None:
        super().__init__(words)
        self.begun = begun


class TooLong(Lost):
    """It was at it for longer than it may, and would be again."""


class Mishap(Lost):
    """The judge itself made a mistake: its traceback, for whoever can mend it."""


class Seat(Protocol):
    """One place to judge at. All may raise `Lost`: the seat is of no more use then, and closed."""

    def open(self, tasks: Collection[Task]) -> Where:
        """Ready for these tasks, one or more, and what it judges with; a TilewrightError if the
        machine cannot judge them."""
        ...

    def judge(self, task: Task, files: Mapping[str, bytes], tell: Tell) -> Judged: ...

    def marks(self, task: Task, tell: Tell) -> dict[str, Judged]: ...

    def close(self) -> None:
        """From any thread, at any time, more than once."""
        ...


class Alive(msgspec.Struct, tag=True):
    pass


class Begun(msgspec.Struct, tag=True):
    """The device is this process's."""


class Told(msgspec.Struct, tag=True):
    words: str


class Ready(msgspec.Struct, tag=True):
    where: Where


class Done(msgspec.Struct, tag=True):
    found: dict[str, Judged]


class Problem(msgspec.Struct, tag=True):
    words: str


class Mistake(msgspec.Struct, tag=True):
    trace: str


Answer = Ready | Done | Problem | Mistake
Message = Alive | Begun | Told | Answer
Wanted = TypeVar("Wanted", Ready, Done)


class LocalSeat:
    """A process on this machine."""

    def __init__(self, device: Device, judge: Judge, silent: float = SILENT_SECONDS) -> None:
        self.device, self.judging, self.silent = device, judge, silent
        self.process: SpawnProcess | None = None
        self.pipe: Connection | None = None
        self.started = False

    def open(self, tasks: Collection[Task]) -> Where:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        process = context.Process(
            target=_sit, args=(theirs, self.device, self.judging), daemon=True
        )
        process.start()
        self.process = process
        theirs.close()
        ready = [
            self._ask("prepare", task, {}, lambda words: None, OPEN_SECONDS, Ready)
            for task in tasks
        ]
        return ready[0].where

    def judge(self, task: Task, files: Mapping[str, bytes], tell: Tell) -> Judged:
        seconds = PROOFS * task.limit + MORE_SECONDS
        return self._ask("judge", task, files, tell, seconds, Done).found[""]

    def marks(self, task: Task, tell: Tell) -> dict[str, Judged]:
        seconds = len(task.marks) * MORE_SECONDS
        return self._ask("marks", task, {}, tell, seconds, Done).found

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join(GONE_SECONDS)  # a driver may hold on to it

    def _ask(
        self, what: str, task: Task, files: Mapping[str, bytes], tell: Tell, seconds: float,
        wanted: type[Wanted],
    ) -> Wanted:  # fmt: skip
        """An answer, within so many seconds from when the device was free."""
        assert self.pipe is not None
        heard = time.monotonic()
        begun = heard if what == "prepare" else math.inf
        try:
            self.pipe.send((what, task, dict(files)))
            while True:
                if not self.pipe.poll(BEAT_SECONDS):
                    silent = self.silent if self.started else OPEN_SECONDS
                    if time.monotonic() - heard > silent:
                        raise Lost(f"its worker was silent for {silent:g} s", begun < math.inf)
                    continue
                heard, self.started = time.monotonic(), True
                if heard - begun > seconds:
                    raise TooLong(f"all of it took longer than {seconds:g} s")
                match msgspec.json.decode(self.pipe.recv_bytes(), type=Message):
                    case Told(words):
                        tell(words)
                    case Alive() if what == "marks":
                        tell("")  # who times them gives way, also in the middle of a long step
                    case Begun():
                        begun = heard
                    case Problem(words):
                        raise TilewrightError(words)
                    case Mistake(trace):
                        raise Mishap(trace, begun < math.inf)
                    case answer if isinstance(answer, wanted):
                        return answer
        except (EOFError, OSError) as error:
            raise Lost(f"its worker {self._end()}", begun < math.inf) from error

    def _end(self) -> str:
        assert self.process is not None
        self.process.join(GONE_SECONDS)
        return f"is no more: {death(self.process.exitcode or 0)}"


def _sit(pipe: Connection, device: Device, judge: Judge) -> None:
    """The process: it answers until nobody asks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends us
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    one, busy = threading.Lock(), threading.Event()

    def say(message: Message) -> None:
        with one, suppress(BrokenPipeError):  # nobody is left to hear it
            pipe.send_bytes(msgspec.json.encode(message))

    def beat() -> None:
        while busy.wait():  # as nobody listens in between
            say(Alive())
            time.sleep(BEAT_SECONDS)

    threading.Thread(target=beat, daemon=True).start()
    while True:
        try:
            what, task, files = pipe.recv()
        except (EOFError, OSError):
            return
        busy.set()
        try:
            answer: Answer = _answer(judge, what, _on(task, device), files, say)
        except TilewrightError as error:
            answer = Problem(str(error))
        except Exception:  # for the log of the class, which this process cannot write
            answer = Mistake(traceback.format_exc())
        busy.clear()
        say(answer)


def _answer(
    judge: Judge, what: str, task: Task, files: Mapping[str, bytes], say: Callable[[Message], None]
) -> Answer:
    def tell(words: str) -> None:
        say(Told(words))

    if what == "prepare":
        return Ready(judge.prepare(task))
    with device_turn(task.device):
        say(Begun())
        found = judge.marks(task, tell) if what == "marks" else {"": judge(task, files, tell)}
    return Done(found)


def _on(task: Task, device: Device) -> Task:
    """A task for any device of a kind is for this one; one that names its device keeps it."""
    if (task.device.kind, task.device.index) == (device.kind, device.index):
        return task
    return replace(task, device=device)
