"""One at a time: a server for a class's folder, a judging for a device of this machine."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tilewright.classroom.course import Course, read_course
from tilewright.classroom.store import Store, store_of
from tilewright.errors import TilewrightError
from tilewright.files import cache_home, reason
from tilewright.runtime.device import Device


@contextmanager
def opened(folder: Path) -> Iterator[tuple[Course, Store]]:
    """A class for its one server: what an earlier one was at when it ended waits again."""
    course = read_course(folder)
    with alone(folder):
        store = store_of(course)
        try:
            store.release_all("the server ended")
            store.keep_tasks(course.tasks.values())
            course = store.with_gone(course)
            store.judged_on(_devices(course))
            yield course, store
        finally:
            store.close()


def _devices(course: Course) -> dict[str, str]:
    """By task. What waits for one that is no longer offered goes to any worker, who says so."""
    devices = {name: str(task.device) for name, task in course.tasks.items()}
    return dict.fromkeys(course.gone, next(iter(devices.values()))) | devices


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """While nobody else serves the class in a folder."""
    with _locked(folder / "state" / "server.lock", wait=False) as held:
        if not held:
            raise TilewrightError(
                f"{folder} has a server already: a class has one, and it may have many workers"
            )
        yield


@contextmanager
def device_turn(device: Device) -> Iterator[None]:
    """While nobody else on this machine judges with the device, whatever their class."""
    name = f"{device.kind}-{device.index}.lock"
    with _locked(cache_home() / "devices" / name, wait=True):
        yield


@contextmanager
def _locked(path: Path, wait: bool) -> Iterator[bool]:
    """The system gives the lock up when its process ends, however it ends."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        end = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise TilewrightError(f"cannot write {path}: {reason(error)}") from error
    try:
        try:
            fcntl.flock(end, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(end)
