"""The run without its recording: calls that the profiler made are not the program's."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.trace import Event


class WithoutOwnCalls:
    """A sink of events in the order they began; calls made while records were read go no further.

    The profiler waits for the device now and then, to have all its records. CUPTI sees every call.
    """

    def __init__(self, *sinks: Callable[[Event], None]) -> None:
        self.sinks = sinks
        self.until = 0.0

    def __call__(self, event: Event) -> None:
        if event.kind == "profiler":
            self.until = max(self.until, event.end)
        elif event.kind == "api" and event.start < self.until:
            return
        for sink in self.sinks:
            sink(event)
