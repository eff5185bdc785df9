"""How often something may be tried: so many times in so many seconds, for each name."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable

MOST_NAMES = 10_000  # that are remembered; the longest unused is forgotten first


class Tries:
    """Safe from threads. A try is counted before it is known how it ends: of many at the same
    moment, no more than `most` get through."""

    def __init__(
        self, most: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.most, self.seconds, self.clock = most, seconds, clock
        self._taken: OrderedDict[str, deque[float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, name: str) -> float:
        """0 if it may be tried now; else how many seconds are to be waited."""
        with self._lock:
            now = self.clock()
            taken = self._taken.setdefault(name, deque())
            self._taken.move_to_end(name)
            while len(self._taken) > MOST_NAMES:
                self._taken.popitem(last=False)
            while taken and taken[0] <= now - self.seconds:
                taken.popleft()
            if len(taken) >= self.most:
                return taken[0] + self.seconds - now
            taken.append(now)
            return 0.0

    def forgive(self, name: str) -> None:
        """The last try was a good one, and does not count."""
        with self._lock:
            if taken := self._taken.get(name):
                taken.pop()
