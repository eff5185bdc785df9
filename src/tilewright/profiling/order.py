"""Events in the order they began, though they come when they are known."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from tilewright.trace import Event


class Ordered:
    """A sink that holds events until no earlier one can come, then passes them on.

    A device tells its times long after the host has gone on; whoever sees that all of them are
    here says so with `settle`. `held` is all the memory this takes.
    """

    def __init__(self, *sinks: Callable[[Event], None]) -> None:
        self.sinks = sinks
        self.held: list[tuple[float, int, Event]] = []
        self.numbers = itertools.count()

    def __call__(self, event: Event) -> None:
        heapq.heappush(self.held, (event.start, next(self.numbers), event))

    def settle(self, until: float = float("inf")) -> None:
        """Every event that began before this moment has come."""
        while self.held and self.held[0][0] <= until:
            _, _, event = heapq.heappop(self.held)
            for sink in self.sinks:
                sink(event)
