"""Whom pages moved for: events of unified memory name no layer, but the time says whose they were.

What the device caused happened inside a kernel, what the host caused inside the layer it was in.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.trace import CPU_FAULT, PAGES_TO_HOST, Event

OF_THE_HOST = (CPU_FAULT, PAGES_TO_HOST)


class Pages:
    """A sink of events in the order they began, which passes them on with those layers.

    `faulted` has the seconds that kernels, by name and layers, spent with faults being served.
    """

    def __init__(self, *sinks: Callable[[Event], None]) -> None:
        self.sinks = sinks
        self.faulted: dict[tuple[str, tuple[str, ...]], float] = {}
        self.kernel: Event | None = None
        self.layer: Event | None = None
        self.counted = 0.0  # until when; faults are served at the same time as others

    def __call__(self, event: Event) -> None:
        if event.kind == "kernel":
            self.kernel = event
        elif event.kind == "layer":
            self.layer = event
        elif event.kind == "unified":
            event = self._placed(event)
        for sink in self.sinks:
            sink(event)

    def _placed(self, event: Event) -> Event:
        by_host = event.name in OF_THE_HOST
        cause = self.layer if by_host else self.kernel
        if cause is None or not cause.start <= event.start <= cause.end:
            return event
        if not by_host:
            key, end = (cause.name, cause.layers), min(event.end, cause.end)
            more = max(0.0, end - max(event.start, self.counted))
            self.faulted[key] = self.faulted.get(key, 0.0) + more
            self.counted = max(self.counted, end)
        return event._replace(layers=cause.layers)
