"""A trace as a timeline in Chrome's format, which Perfetto and chrome://tracing open.

Events are written as they come, so that a timeline of any length takes no memory. Calls point with
arrows to the work they started.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path
from typing import IO

from tilewright.errors import TilewrightError
from tilewright.files import reason
from tilewright.trace import Event, Kind

HOST, DEVICE = 1, 2
# Calls that are remembered for the arrow to the work they started, which follows soon.
REMEMBERED = 100_000
# Track of the host for each kind; everything else is the device's.
HOST_TRACKS: dict[Kind, str] = {
    "phase": "phases", "layer": "layers", "host": "computed by the host", "profiler": "profiler",
}  # fmt: skip


class Timeline:
    """Writes events to a file that is open, and must be finished to be whole."""

    def __init__(self, file: IO[bytes], path: Path, device: str) -> None:
        self.file, self.path = file, path
        self.tracks: dict[tuple[int, str], int] = {}
        self.quoted: dict[str, str] = {}
        self.calls: OrderedDict[int, tuple[str, int]] = OrderedDict()
        self.arrows = self.pages = 0
        self.separator = ""
        self._write('{"displayTimeUnit": "ns", "traceEvents": [')
        for process, name in ((HOST, "host"), (DEVICE, device)):
            self._record(
                f'"ph": "M", "name": "process_name", "pid": {process}, "tid": 0, '
                f'"args": {{"name": {json.dumps(name)}}}'
            )

    def __call__(self, event: Event) -> None:
        process, track = self._place(event)
        start, length = f"{1e6 * event.start:.3f}", f"{1e6 * max(0.0, event.seconds):.3f}"
        head = (
            f'"name": {self._quote(event.name)}, "cat": "{event.kind}", '
            f'"pid": {process}, "tid": {track}'
        )
        if event.kind == "unified":
            # Pages move at the same time as others: such events may overlap.
            self.pages += 1
            end = f"{1e6 * max(event.start, event.end):.3f}"
            arguments = self._arguments(event)
            self._record(f'"ph": "b", {head}, "id": {self.pages}, "ts": {start}, {arguments}')
            self._record(f'"ph": "e", {head}, "id": {self.pages}, "ts": {end}')
            return
        self._record(f'"ph": "X", {head}, "ts": {start}, "dur": {length}, {self._arguments(event)}')
        if event.kind == "api":
            self.calls[event.correlation] = (start, track)
            if len(self.calls) > REMEMBERED:
                self.calls.popitem(last=False)
        elif event.correlation in self.calls:
            self._arrow(event.correlation, start, process, track)

    def finish(self) -> None:
        self._write("\n]}\n")

    def _arrow(self, correlation: int, start: str, process: int, track: int) -> None:
        called, thread = self.calls[correlation]
        self.arrows += 1
        both = f'"name": "starts", "cat": "arrow", "id": {self.arrows}'
        self._record(f'"ph": "s", {both}, "pid": {HOST}, "tid": {thread}, "ts": {called}')
        # Clocks of two devices differ a little, and nothing starts before it was asked for.
        when = max(start, called, key=float)
        self._record(
            f'"ph": "f", "bp": "e", {both}, "pid": {process}, "tid": {track}, "ts": {when}'
        )

    def _place(self, event: Event) -> tuple[int, int]:
        """The process and the track of an event; a new track is named first."""
        if event.kind == "api":
            process, name = HOST, f"API calls, {event.lane}"
        elif event.kind in HOST_TRACKS:
            process, name = HOST, HOST_TRACKS[event.kind]
        else:
            process, name = DEVICE, event.lane or "computation"
        key = (process, name)
        if key not in self.tracks:
            self.tracks[key] = number = len(self.tracks) + 1
            self._record(
                f'"ph": "M", "name": "thread_name", "pid": {process}, "tid": {number}, '
                f'"args": {{"name": {json.dumps(name)}}}'
            )
        return process, self.tracks[key]

    def _arguments(self, event: Event) -> str:
        parts = []
        if event.layers:
            parts.append(f'"layers": {self._quote(", ".join(event.layers))}')
        if event.bytes:
            parts.append(f'"bytes": {event.bytes}')
        if event.grid and event.block:
            parts.append(f'"grid": {list(event.grid)}, "block": {list(event.block)}')
        if event.cost:
            parts.append(f'"flop": {event.cost.flops}, "least bytes": {event.cost.bytes}')
        if event.times > 1:
            parts.append(f'"count": {event.times}')
        return f'"args": {{{", ".join(parts)}}}'

    def _quote(self, text: str) -> str:
        """As JSON; names are few and come often."""
        if text not in self.quoted:
            self.quoted[text] = json.dumps(text)
        return self.quoted[text]

    def _record(self, fields: str) -> None:
        self._write(f"{self.separator}\n{{{fields}}}")
        self.separator = ","

    def _write(self, text: str) -> None:
        try:
            self.file.write(text.encode())
        except OSError as error:
            raise TilewrightError(f"cannot write {self.path}: {reason(error)}") from error
