"""Where workers go: how many a cluster has room for, and which cores of a machine are whose."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.errors import TilewrightError
from tilewright.runtime.device import Device


@dataclass(frozen=True)
class Places:
    """So many workers, each with so many processors and GPUs of its machine."""

    workers: int
    cpus: int
    gpus: int


def places(device: Device, wanted: int | None, machines: Sequence[tuple[int, int]]) -> Places:
    """Workers on machines of (processors, GPUs): `wanted`, or one for each processor or GPU.

    Who asks for fewer than there are processors gets workers with several of them each.
    """
    if device.kind == "cuda":
        if device.index:
            raise TilewrightError(f"--device {device}: on a cluster each worker has its own: cuda")
        there = gpus_with_room(machines)
        _check(wanted, there, "GPU")
        return Places(wanted or there, 1, 1)
    there = sum(cpus for cpus, _ in machines)
    _check(wanted, there, "processor")
    count = wanted or there
    most = max(cpus for cpus, _ in machines)
    shares = (share for share in range(most, 0, -1) if _fitting(share, machines) >= count)
    return Places(count, next(shares), 0)


def gpus_with_room(machines: Sequence[tuple[int, int]]) -> int:
    """Whoever has a GPU has a processor, too."""
    return sum(min(cpus, gpus) for cpus, gpus in machines)


def _fitting(share: int, machines: Sequence[tuple[int, int]]) -> int:
    """Workers with `share` processors each; none reaches over two machines."""
    return sum(cpus // share for cpus, _ in machines)


def _check(wanted: int | None, there: int, what: str) -> None:
    if not there:
        raise TilewrightError(f"--on ray: the cluster has no {what}")
    if wanted is not None and wanted > there:
        many = f"{there} {what}{'s' if there > 1 else ''}"
        raise TilewrightError(f"--workers {wanted}: the cluster has {many}, one for each worker")


def take_cores(share: int) -> socket.socket | None:
    """Take `share` cores of this machine that no other worker has.

    They are this process's as long as what comes back is open: a name that only one process can
    have, and that is free again when it ends, also when it is killed. Workers on the same cores
    would wait for each other, and each would start as many threads as there are cores. None where
    this is not possible: then the system decides.
    """
    if not sys.platform.startswith("linux"):
        return None
    cores = sorted(os.sched_getaffinity(0))
    if share >= len(cores):
        return None
    for first in range(0, len(cores) - share + 1, share):
        held = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            held.bind(f"\0tilewright-{os.getuid()}-cores-from-{cores[first]}")
        except OSError:
            held.close()
        else:
            os.sched_setaffinity(0, cores[first : first + share])
            return held
    return None
