"""The workers of a class: one for each of its devices, each with somebody who attends to it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from tilewright.classroom.attendant import PAUSE_SECONDS, Attendant
from tilewright.classroom.course import Course
from tilewright.classroom.judging import Judge, KernelJudge
from tilewright.classroom.places import places
from tilewright.classroom.seats import SILENT_SECONDS, LocalSeat, Seat
from tilewright.classroom.store import Store
from tilewright.runtime.device import Device


class Pool(Protocol):
    """The workers of a class."""

    def start(self) -> None: ...

    def stop(self) -> None:
        """At once: what is being judged waits again, as if it had not been begun."""
        ...

    def alive(self) -> int:
        """How many can take work."""
        ...


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
