"""Which devices a class's workers have: a worker each, and never two that time on one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tilewright.classroom.course import Task
from tilewright.errors import TilewrightError
from tilewright.runtime.device import Device


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
