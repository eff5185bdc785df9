"""Workers with a device each, all of one kind: what is measured on one holds for the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.cluster import session
from tilewright.cluster.places import places, take_cores
from tilewright.errors import TilewrightError
from tilewright.runtime.device import Device

if TYPE_CHECKING:
    from ray.actor import ActorHandle


class Bench:
    """A process with a device: what all such workers have."""

    def __init__(self, cores: int) -> None:
        self.held = take_cores(cores) if cores else None

    def describe(self, device: Device) -> str:
        """The device in words; why it cannot be used, after a mark, if it cannot."""
        from tilewright.rungs import choose

        try:
            rung = choose(device, None)
            return rung.open_runtime(device, rung.memories[0]).describe()
        except TilewrightError as error:
            return f"{UNUSABLE}{error}"


UNUSABLE = "cannot be used: "


def of_one_kind(kind: type[Bench], device: Device, wanted: int | None) -> list[ActorHandle[Bench]]:
    """Workers of a cluster, or an error that names their devices where these differ.

    Without a number there is one for each GPU, or for each machine: whoever times on a CPU needs
    all of it.
    """
    ray, machines = session.library(), session.machines()
    room = places(device, wanted or (None if device.kind == "cuda" else len(machines)), machines)
    made = ray.remote(num_cpus=room.cpus, num_gpus=room.gpus, max_restarts=-1)(kind)
    cores = 0 if room.gpus else room.cpus
    workers = [made.remote(cores) for _ in range(room.workers)]
    check_alike(ray.get([each.describe.remote(device) for each in workers]))
    return workers


def check_alike(devices: Sequence[str]) -> None:
    """Refuse devices of several kinds: no table may have both."""
    found = Counter(devices)
    for words in found:
        if words.startswith(UNUSABLE):
            raise TilewrightError(f"--on ray: a worker's device {words}")
    if len(found) > 1:
        named = "; ".join(f"{many} x {name}" for name, many in found.items())
        raise TilewrightError(
            f"--on ray: workers have different devices, and a table is of one kind: {named}"
        )
