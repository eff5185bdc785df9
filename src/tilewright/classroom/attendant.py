"""Who attends to one worker of a class: a thread of the server.

It takes what waits, has it judged in a seat (a process here, or elsewhere in a cluster), and keeps
what came of it. Whatever happens to the process, the thread goes on with a new one. Waiting is
measured by the clock that cannot be set.
"""

from __future__ import annotations

import secrets
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from tilewright.classroom.course import Task
from tilewright.classroom.judging import Tell
from tilewright.classroom.marks import Where
from tilewright.classroom.places import Place
from tilewright.classroom.seats import Lost, Mishap, Seat, TooLong
from tilewright.classroom.store import Store, Submitted
from tilewright.errors import TilewrightError
from tilewright.results.grade import Judged
from tilewright.runtime.device import Device
from tilewright.terminal import say_once

LOOK_SECONDS = 0.3  # between two looks at an empty queue
BEAT_SECONDS = 10.0  # between two lines for the teacher's page
TOLD_SECONDS = 0.5  # between two words of progress
PAUSE_SECONDS = 5.0  # before a new process, after one was lost


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
        self.tried: set[tuple[str, int]] = set()  # marks: of a task, at a teacher's wish
        self.beaten = 0.0
        self.doing = ""

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
            except Mishap as mishap:
                self._failed(str(mishap), mishap.begun)
            except Lost as lost:
                self._release(str(lost), lost.begun)
            except TilewrightError as error:
                self._say(f"cannot judge: {error}")
            except Exception:  # whatever it is, the others' work goes on
                self._failed(traceback.format_exc())
            self.ready = False
            self.stopping.wait(self.pause)
            self._release("it was replaced")

    def _attend(self) -> None:
        """With one seat, until it is lost or nobody wants it."""
        self.seat = seat = self.new_seat(self.place.device)
        try:
            self._say("starts")
            where = seat.open(self.tasks.values())
            self.ready = True
            while not self.stopping.is_set():
                taken = self.store.take(self.worker, self.place.serves)
                if taken is not None:
                    self._judge(seat, taken)
                elif not self._mark(seat, where):
                    self._say("waits", BEAT_SECONDS)
                    self.stopping.wait(LOOK_SECONDS)
        finally:
            seat.close()

    def _judge(self, seat: Seat, taken: Submitted) -> None:
        self._say(f"judges {taken.number}")
        keep = partial(self.store.finish, taken.number, self.worker)
        task = self.tasks.get(taken.task)
        if task is None:
            why = f"task {taken.task} is no longer offered"
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

    def _mark(self, seat: Seat, where: Where) -> bool:
        """Time marks that are due, of one task, while nobody waits; whether there were some."""
        for name, task in self.tasks.items():
            asked = self.store.marks_asked(name)
            wish = name, asked
            if wish in self.tried or not self.store.marks_due(task, where):
                continue
            self.tried.add(wish)  # where it fails, the next server tries again
            self._say(f"times the marks of {name}")
            try:
                found = seat.marks(task, self._giving_way(wish))
            except TilewrightError as error:
                say_once(f"the marks of {name}: {error}")
                return True
            self._surely(partial(self.store.keep_marks, task, where, asked, found))
            return True
        return False

    def _giving_way(self, wish: tuple[str, int]) -> Tell:
        """To whoever hands in meanwhile: marks can be timed later, and the process is let go."""

        def tell(words: str) -> None:
            waits = False
            with _may_fail():
                waits = self.store.any_waiting(self.place.serves)
            if waits:
                self.tried.discard(wish)
                raise Lost("somebody waits")

        return tell

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

    def _failed(self, trace: str, begun: bool = True) -> None:
        """By a mistake of ours: its owner reads a reference, the teacher's log has all of it."""
        reference = self.store.mishap(f"worker {self.worker}, which {self.doing}", trace)
        self._release(f"the judge made a mistake (tell your teacher: reference {reference})", begun)

    def _release(self, reason: str, begun: bool = True) -> None:
        """What was not begun, or ends with the server, was not cut by its own doing."""
        counts = begun and not self.stopping.is_set()
        self._surely(partial(self.store.release, self.worker, reason, counts))

    def _say(self, words: str, every: float = 0.0) -> None:
        """For the teacher's page, which can do without."""
        self.doing = words
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
