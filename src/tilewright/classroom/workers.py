"""Workers of a class: as many as there are devices, and never two that time on one.

A thread of the server attends to each: it takes what waits, has it judged in a seat (a process
here, or elsewhere in a cluster), and keeps what came of it. Whatever happens to the process, the
thread goes on with a new one. Waiting is measured by the clock that cannot be set.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from tilewright.classroom.course import Course, Task
from tilewright.classroom.judging import Judge, KernelJudge, Tell, measured
from tilewright.classroom.seats import SILENT_SECONDS, LocalSeat, Lost, Seat, TooLong
from tilewright.classroom.store import Store, Submitted
from tilewright.errors import TilewrightError
from tilewright.results.grade import Judged
from tilewright.runtime.device import Device
from tilewright.terminal import say_once

LOOK_SECONDS = 0.3  # between two looks at an empty queue
BEAT_SECONDS = 10.0  # between two lines for the teacher's page
TOLD_SECONDS = 0.5  # between two words of progress
PAUSE_SECONDS = 5.0  # before a new process, after one was lost


class Pool(Protocol):
    """The workers of a class."""

    def start(self) -> None: ...

    def stop(self) -> None:
        """At once: what is being judged waits again, as if it had not been begun."""
        ...

    def alive(self) -> int:
        """How many can take work."""
        ...


@dataclass(frozen=True)
class Place:
    """A device, and the tasks' names of devices that it stands for."""

    device: Device
    serves: frozenset[str]


def places(tasks: Collection[Task], devices: Collection[Device] = ()) -> list[Place]:
    """One for each device: those named, or those that tasks name. `cuda` is any of its kind."""
    wanted = {task.device for task in tasks}
    distinct = {(device.kind, device.index): device for device in devices or wanted}
    made = [
        Place(device, frozenset(str(each) for each in wanted if _can(device, each)))
        for device in distinct.values()
    ]
    for task in tasks:
        if not any(str(task.device) in place.serves for place in made):
            raise TilewrightError(
                f"task {task.name} is judged on {task.device}, and no worker has it"
            )
    return [place for place in made if place.serves]


def _can(device: Device, wanted: Device) -> bool:
    return device.kind == wanted.kind and wanted.number in (None, device.index)


class Attendant(threading.Thread):
    """Attends to one place: takes, has it judged, keeps what came of it."""

    def __init__(
        self,
        store: Store,
        tasks: Mapping[str, Task],
        place: Place,
        new_seat: Callable[[Device], Seat],
        pause: float = PAUSE_SECONDS,
    ) -> None:
        super().__init__(name=f"attends to {place.device}", daemon=True)
        self.store, self.place, self.new_seat, self.pause = store, place, new_seat, pause
        self.tasks = {n: task for n, task in tasks.items() if str(task.device) in place.serves}
        self.stopping = threading.Event()
        self.seat: Seat | None = None
        self.worker = ""
        self.ready = False
        self.tried: set[str] = set()
        self.beaten = 0.0

    def stop(self) -> None:
        self.stopping.set()
        while self.is_alive():
            if self.seat is not None:
                self.seat.close()
            self.join(LOOK_SECONDS)

    def run(self) -> None:
        while not self.stopping.is_set():
            self.worker = f"{self.place.device} {secrets.token_hex(3)}"
            try:
                self._attend()
            except Lost as lost:
                self._release(str(lost), lost.begun)
            except TilewrightError as error:
                self._say(f"cannot judge: {error}")
            except Exception as error:  # whatever it is, the others' work goes on
                say_once(f"a worker on {self.place.device}: {type(error).__name__}: {error}")
                self._release(f"its worker failed with {type(error).__name__}")
            self.ready = False
            self.stopping.wait(self.pause)
            self._release("it was replaced")

    def _attend(self) -> None:
        """With one seat, until it is lost or nobody wants it."""
        self.seat = seat = self.new_seat(self.place.device)
        try:
            self._say("starts")
            seat.open(self.tasks.values())
            self.ready = True
            while not self.stopping.is_set():
                taken = self.store.take(self.worker, self.place.serves)
                if taken is not None:
                    self._judge(seat, taken)
                elif not self._mark(seat):
                    self._say("waits", BEAT_SECONDS)
                    self.stopping.wait(LOOK_SECONDS)
        finally:
            seat.close()

    def _judge(self, seat: Seat, taken: Submitted) -> None:
        self._say(f"judges {taken.number}")
        keep = partial(self.store.finish, taken.number, self.worker)
        task = self.tasks.get(taken.task)
        if task is None:
            why = f"there is no task {taken.task}"
            self._surely(partial(keep, Judged(outcome="nothing to judge", reason=why)))
            return
        try:
            judged = seat.judge(task, self.store.files(taken.number), self._telling(taken))
        except TooLong as lost:
            self._surely(partial(keep, Judged(outcome="stopped", reason=str(lost))))
            raise
        except TilewrightError as error:
            raise Lost(f"its worker could not judge it: {error}") from error
        self._surely(partial(keep, judged))

    def _mark(self, seat: Seat) -> bool:
        """Time the marks of a task that has none yet, while nobody waits; whether there was one."""
        for name, task in self.tasks.items():
            if not task.marks or name in self.tried or self.store.marks(measured(task)) is not None:
                continue
            self.tried.add(name)  # where it fails, the next server tries again
            self._say(f"times the marks of {name}")
            try:
                found = seat.marks(task, lambda words: None)
            except TilewrightError as error:
                say_once(f"the marks of {name}: {error}")
                return True
            self._surely(partial(self.store.keep_marks, measured(task), found))
            return True
        return False

    def _telling(self, taken: Submitted) -> Tell:
        last = 0.0

        def tell(words: str) -> None:
            nonlocal last
            if time.monotonic() - last >= TOLD_SECONDS:
                last = time.monotonic()
                with _may_fail():
                    self.store.progress(taken.number, self.worker, words)
                self._say(f"judges {taken.number}: {words}", BEAT_SECONDS)

        return tell

    def _release(self, reason: str, begun: bool = True) -> None:
        """What was not begun, or ends with the server, was not cut by its own doing."""
        counts = begun and not self.stopping.is_set()
        self._surely(partial(self.store.release, self.worker, reason, counts))

    def _say(self, words: str, every: float = 0.0) -> None:
        """For the teacher's page, which can do without."""
        if time.monotonic() - self.beaten >= every:
            self.beaten = time.monotonic()
            with _may_fail():
                self.store.beat(self.worker, str(self.place.device), words)

    def _surely(self, keep: Callable[[], object]) -> None:
        """What must not be lost is tried until the disk takes it, or the server ends: then it
        is as if the process had been lost."""
        while True:
            try:
                keep()
                return
            except TilewrightError as error:
                say_once(str(error))
                if self.stopping.wait(self.pause):
                    return


@contextmanager
def _may_fail() -> Iterator[None]:
    try:
        yield
    except TilewrightError as error:
        say_once(str(error))


class LocalPool:
    """Workers on this machine, a process each."""

    def __init__(
        self,
        course: Course,
        store: Store,
        devices: Collection[Device] = (),
        judge: Judge | None = None,
        pause: float = PAUSE_SECONDS,
        silent: float = SILENT_SECONDS,
    ) -> None:
        chosen = judge or KernelJudge()

        def new_seat(device: Device) -> Seat:
            return LocalSeat(device, chosen, silent)

        self.attendants = [
            Attendant(store, course.tasks, place, new_seat, pause)
            for place in places(course.tasks.values(), devices)
        ]

    def start(self) -> None:
        for attendant in self.attendants:
            attendant.start()

    def stop(self) -> None:
        for attendant in self.attendants:
            attendant.stopping.set()
        for attendant in self.attendants:
            attendant.stop()

    def alive(self) -> int:
        return sum(attendant.ready for attendant in self.attendants)
