"""Who began what: a part whose workers died again and again is not tried for ever."""

from __future__ import annotations

from collections.abc import Callable

TRIES = 4  # of a part; more deaths are hardly by chance

# Called with a part's first image and a worker's name: which try it is, from 1.
Begin = Callable[[int, str], int]


class Ledger:
    """Kept in a process of its own, which outlives workers."""

    def __init__(self) -> None:
        self.begun: dict[int, list[str]] = {}

    def begin(self, first: int, worker: str) -> int:
        tries = self.begun.setdefault(first, [])
        tries.append(worker)
        return len(tries)

    def lost(self) -> set[str]:
        """Workers that began what another had to begin again."""
        return {worker for tries in self.begun.values() for worker in tries[:-1]}


def unwritten(first: int, worker: str) -> int:
    """For a worker whose death nobody survives."""
    return 1
