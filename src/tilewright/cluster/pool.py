"""The workers of a class on a Ray cluster: a GPU each, or a machine each where there is none.

Who attends to a worker, and how it judges, is the same as on one machine: at the other end of Ray
sits a process of its own, in the same isolation, that holds its device while it judges.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from tilewright.classroom.attendant import PAUSE_SECONDS, Attendant
from tilewright.classroom.course import Course, Task
from tilewright.classroom.judging import Judge, KernelJudge, Tell
from tilewright.classroom.marks import Where
from tilewright.classroom.places import Place, places
from tilewright.classroom.seats import (
    OPEN_SECONDS,
    SILENT_SECONDS,
    LocalSeat,
    Lost,
    Mishap,
    TooLong,
)
from tilewright.classroom.store import Store
from tilewright.classroom.workers import LocalPool
from tilewright.cluster import session
from tilewright.cluster.places import gpus_with_room
from tilewright.cluster.saying import Failed, Said, error_of, failed, listen, said
from tilewright.errors import TilewrightError
from tilewright.results.grade import Judged
from tilewright.runtime.device import Device

if TYPE_CHECKING:
    from ray import ObjectRefGenerator
    from ray.actor import ActorHandle


KNOWN = (TooLong, Mishap, Lost)
AWAY_SECONDS = 10.0  # more than a seat's own silence, of which the chair itself tells
Judging = Iterator[Said[str, dict[str, Judged]]]


class Chair:
    """The other end: a seat in a process of Ray's, which has a GPU if it asked for one."""

    def __init__(self, device: Device, judge: Judge, silent: float = SILENT_SECONDS) -> None:
        self.seat = LocalSeat(_own(device), judge, silent)

    def open(self, tasks: Collection[Task]) -> Failed | Where:
        # In the thread that stays: the process that is started ends with whoever started it.
        try:
            return self.seat.open(tasks)
        except (Lost, TilewrightError) as error:
            return failed(error, KNOWN)

    def judge(self, task: Task, files: Mapping[str, bytes]) -> Judging:
        def work(tell: Tell) -> dict[str, Judged]:
            return {"": self.seat.judge(task, files, tell)}

        yield from said(work, KNOWN)

    def marks(self, task: Task) -> Judging:
        yield from said(partial(self.seat.marks, task), KNOWN)


def _own(device: Device) -> Device:
    """The GPU that Ray chose, by its number on its machine.

    Ray hides the others, so that each would be number 0, and judges wait for a device by number.
    """
    if device.kind != "cuda":
        return device
    (number, *_) = session.library().get_gpu_ids()
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    return Device.parse(f"{device.kind}:{number}")


class RaySeat:
    """One place to judge at, somewhere in the cluster."""

    def __init__(self, device: Device, judge: Judge, silent: float = SILENT_SECONDS) -> None:
        self.device, self.judging, self.silent = device, judge, silent
        self.ray = session.library()
        self.chair: ActorHandle[Chair] | None = None

    def open(self, tasks: Collection[Task]) -> Where:
        gpus = 1 if self.device.kind == "cuda" else 0
        # Workers without a GPU are spread over the machines, and time in turns on each.
        chairs = self.ray.remote(num_cpus=1, num_gpus=gpus, scheduling_strategy="SPREAD")(Chair)
        self.chair = chair = chairs.remote(self.device, self.judging, self.silent)
        try:
            answer: Failed | Where = self.ray.get(
                chair.open.remote(list(tasks)), timeout=OPEN_SECONDS
            )
        except self.ray.exceptions.GetTimeoutError as error:
            raise Lost(f"the cluster had no {self.device} for it in {OPEN_SECONDS:g} s") from error
        except self.ray.exceptions.RayError as error:
            raise Lost(f"its worker is no more: {_short(error)}") from error
        if isinstance(answer, Failed):
            raise error_of(answer, Lost, KNOWN)
        return answer

    def judge(self, task: Task, files: Mapping[str, bytes], tell: Tell) -> Judged:
        return self._ask("judge", tell, task, dict(files))[""]

    def marks(self, task: Task, tell: Tell) -> dict[str, Judged]:
        return self._ask("marks", tell, task)

    def close(self) -> None:
        if self.chair is not None:
            self.ray.kill(self.chair)

    def _ask(self, what: str, tell: Tell, *given: object) -> dict[str, Judged]:
        method = getattr(self.chair, what).options(num_returns="streaming")
        try:
            return listen(self._heard(method.remote(*given)), tell, Lost, KNOWN)
        except self.ray.exceptions.RayError as error:
            raise Lost(f"its worker is no more: {_short(error)}") from error

    def _heard(self, answers: ObjectRefGenerator) -> Judging:
        """What the chair says; one that stands still is given up, as Ray knows only who died."""
        patience = self.silent + AWAY_SECONDS
        while True:
            ready, _ = self.ray.wait([answers], timeout=patience)
            if not ready:
                raise Lost(f"its worker was silent for {patience:g} s")
            try:
                answer = next(answers)
            except StopIteration:
                return
            yield self.ray.get(answer)


def _short(error: Exception) -> str:
    """The first of Ray's many lines."""
    return str(error).strip().partition("\n")[0]


class RayPool(LocalPool):
    """Workers of a class in the cluster at an address; None: on this machine.

    For each device that is named, for each GPU, or for each machine where tasks need none.
    """

    def __init__(
        self,
        course: Course,
        store: Store,
        address: str | None,
        devices: Collection[Device] = (),
        judge: Judge | None = None,
        pause: float = PAUSE_SECONDS,
        silent: float = SILENT_SECONDS,
    ) -> None:
        self.course, self.store, self.address, self.devices = course, store, address, devices
        self.judge, self.pause, self.silent = judge or KernelJudge(), pause, silent
        self.opened = ExitStack()
        self.attendants: list[Attendant] = []

    def start(self) -> None:
        self.opened.enter_context(session.connected(self.address, len(self.devices)))
        tasks = self.course.tasks
        self.attendants = [
            Attendant(self.store, tasks, place, self._seat, self.pause)
            for place in (
                places(tasks.values(), self.devices)
                if self.devices
                else everywhere(tasks.values(), session.machines())
            )
        ]
        super().start()

    def _seat(self, device: Device) -> RaySeat:
        return RaySeat(device, self.judge, self.silent)

    def stop(self) -> None:
        super().stop()
        self.opened.close()


def everywhere(tasks: Iterable[Task], machines: list[tuple[int, int]]) -> list[Place]:
    """A place for every GPU of the cluster, or for every machine where tasks need none."""
    asked = list(tasks)
    kinds = {task.device.kind: Device.parse(task.device.kind) for task in asked}
    made = []
    for place in places(asked, kinds.values()):
        on_gpu = place.device.kind == "cuda"
        many = gpus_with_room(machines) if on_gpu else len(machines)
        if not many:
            what = "GPU" if on_gpu else "processor"
            raise TilewrightError(
                f"the cluster has no {what}, and tasks are judged on {place.device}"
            )
        made += [place] * many
    return made
