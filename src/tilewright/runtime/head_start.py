"""A host that is ahead of its GPU while the GPU's times are recorded.

Events around a launch hold its time on the device only if the launch is there when the device
comes to it. Kernels of a few microseconds are done before the host has launched the next one: what
was recorded of 120 of them was how fast Python launches. So the device is held back for as long as
the host took without that, each time the host begins anew, and then finds all that it has to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tilewright.runtime.recorder import EventRecorder

# Turns that show how long the host takes: the first finds nothing warm.
LOOKED_AT = 2
# The most that a device is held back in a turn, all in all; and what is worth a launch.
MOST_SECONDS, LEAST_SECONDS = 0.02, 20e-6


class HeadStart:
    """Of one program's turns. A runtime that needs none is left alone."""

    def __init__(self, runtime: object, clock: Callable[[], float] = time.perf_counter) -> None:
        self.runtime: EventRecorder | None = None
        if isinstance(runtime, EventRecorder) and runtime.recording_disturbs:
            self.runtime = runtime
        self.clock = clock
        self.took: list[float] = []
        self.beginnings = 1

    @contextmanager
    def given(self) -> Iterator[None]:
        """Around a turn that is recorded."""
        if self.runtime is None:
            yield
            return
        seen, start = self.runtime.beginnings, self.clock()
        self.runtime.lead = self.seconds
        try:
            yield
        finally:
            self.runtime.lead = 0.0
        if len(self.took) < LOOKED_AT:
            self.took.append(self.clock() - start)
            self.beginnings = max(1, self.runtime.beginnings - seen)

    @property
    def seconds(self) -> float:
        """Each time the host begins."""
        if len(self.took) < LOOKED_AT:
            return 0.0
        each = min(MOST_SECONDS, *self.took) / self.beginnings
        return each if each >= LEAST_SECONDS else 0.0
