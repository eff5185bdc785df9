"""CUPTI's activity records into events: matched by correlation, on the host's clock.

A kernel's record knows nothing of layers. The call that launched it has the same correlation, and a
third record says which number was pushed when the call was made: the number stands for layers. The
three come in any order, possibly in different buffers.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tilewright.trace import (
    CPU_FAULT,
    DEVICE_TO_DEVICE,
    DEVICE_TO_HOST,
    GPU_FAULTS,
    HOST_TO_DEVICE,
    MOVING,
    PAGES_BETWEEN_DEVICES,
    PAGES_TO_DEVICE,
    PAGES_TO_HOST,
    Cost,
    Event,
    Kind,
    Moved,
)

COPIES = {"HTOD": HOST_TO_DEVICE, "DTOH": DEVICE_TO_HOST, "DTOD": DEVICE_TO_DEVICE}
COUNTERS = {
    "BYTES_TRANSFER_HTOD": PAGES_TO_DEVICE,
    "BYTES_TRANSFER_DTOH": PAGES_TO_HOST,
    "CPU_PAGE_FAULT_COUNT": CPU_FAULT,
    "GPU_PAGE_FAULT": GPU_FAULTS,
    "THRASHING": "thrash",
    "THROTTLING": "throttle",
    "REMOTE_MAP": "remote map",
    "BYTES_TRANSFER_DTOD": PAGES_BETWEEN_DEVICES,
}


class About(NamedTuple):
    """What work of the device is for."""

    layers: tuple[str, ...] = ()
    cost: Cost | None = None
    moved: Moved | None = None


NOTHING = About()


class Records:
    """Takes records from CUPTI's callback, whatever thread that is on, and gives events.

    `known` has what a pushed number stands for. `own` are addresses that the profiler itself
    touches: records of them are no events, and it is noted that they came.
    """

    def __init__(self, cupti: Any) -> None:
        self.cupti = cupti
        self.known: dict[int, About] = {}
        # Times are CUPTI's until `events`; what is made of a record is kept, as its buffer is not.
        self.taken: list[Event] = []
        self.held: list[Event] = []
        self.external: dict[int, int] = {}
        self.external_before: dict[int, int] = {}
        self.names: dict[tuple[int, int], str] = {}
        self.error: Exception | None = None
        self.own: list[range] = []
        self.own_seen = False
        self.lock = threading.Lock()
        kinds = cupti.ActivityKind
        self.makers = {
            int(kinds.CONCURRENT_KERNEL): self._kernel,
            int(kinds.MEMCPY): self._copy,
            int(kinds.MEMSET): self._memset,
            int(kinds.RUNTIME): self._call,
            int(kinds.DRIVER): self._call,
            int(kinds.UNIFIED_MEMORY_COUNTER): self._unified,
        }
        self.correlating = int(kinds.EXTERNAL_CORRELATION)
        self.moving = int(kinds.UNIFIED_MEMORY_COUNTER)

    def take(self, records: Iterable[Any]) -> None:
        """CUPTI's callback for a buffer that is full or flushed."""
        with self.lock:
            try:
                for record in records:
                    kind = record.kind
                    if kind == self.correlating:
                        self.external[record.correlation_id] = record.external_id
                    elif kind == self.moving and self._is_own(record):
                        self.own_seen = True
                    elif kind in self.makers:
                        self.taken.append(self.makers[kind](record))
            except Exception as error:  # CUPTI would swallow it, and the rest of the buffer
                self.error = error

    def events(self, zero: int, final: bool = True) -> Iterator[Event]:
        """Everything taken; an error, if a record could not be read.

        Work whose call has not come yet waits for the next time, but once.
        """
        with self.lock:
            if self.error is not None:
                raise self.error
            taken, self.taken = self.taken, []
            held, self.held = self.held, []
            numbers = {**self.external_before, **self.external}
            self.external_before, self.external = self.external, {}
        called = {event.correlation for event in taken if event.kind == "api"}
        for event in taken:
            number = numbers.get(event.correlation)
            early = event.kind in ("kernel", "copy", "memset") and event.correlation not in called
            if number is None and early and not final:
                self.held.append(event)
            else:
                held.append(event)
        for event in held:
            about = self.known.get(numbers.get(event.correlation, 0), NOTHING)
            yield Event(
                event.kind, event.name, 1e-9 * (event.start - zero), 1e-9 * (event.end - zero),
                about.layers, event.bytes, event.grid, event.block,
                about.cost if event.kind == "kernel" else None, event.lane, event.correlation,
                event.times, about.moved if event.kind == "copy" else None,
            )  # fmt: skip

    def _kernel(self, record: Any) -> Event:
        return Event(
            "kernel", record.name, record.start, record.end,
            grid=(record.grid_x, record.grid_y, record.grid_z),
            block=(record.block_x, record.block_y, record.block_z),
            lane=f"stream {record.stream_id}", correlation=record.correlation_id,
        )  # fmt: skip

    def _copy(self, record: Any) -> Event:
        kind = self.cupti.ActivityMemcpyKind(record.copy_kind).name
        return self._moved("copy", COPIES.get(kind, f"[memcpy {kind}]"), record)

    def _memset(self, record: Any) -> Event:
        return self._moved("memset", "[memset]", record)

    def _moved(self, kind: Kind, name: str, record: Any) -> Event:
        lane = f"stream {record.stream_id}"
        return Event(
            kind, name, record.start, record.end, bytes=record.bytes, lane=lane,
            correlation=record.correlation_id,
        )  # fmt: skip

    def _call(self, record: Any) -> Event:
        key = (record.kind, record.cbid)
        if key not in self.names:
            domains = self.cupti.CallbackDomain
            driver = record.kind == int(self.cupti.ActivityKind.DRIVER)
            domain = domains.DRIVER_API if driver else domains.RUNTIME_API
            # Names end in the version of CUDA that brought them: cudaMemcpyAsync_v3020.
            name = self.cupti.get_callback_name(domain, record.cbid)
            self.names[key] = re.sub(r"(_ptsz|_ptds|_v\d+)+$", "", name)
        return Event(
            "api", self.names[key], record.start, record.end, lane=f"thread {record.thread_id}",
            correlation=record.correlation_id,
        )  # fmt: skip

    def _is_own(self, record: Any) -> bool:
        return any(record.address in addresses for addresses in self.own)

    def _unified(self, record: Any) -> Event:
        kind = self.cupti.ActivityUnifiedMemoryCounterKind(record.counter_kind).name
        name = COUNTERS.get(kind, kind.lower())
        # Of a CPU page fault the value is where the program was, and it has no end.
        end = max(record.start, record.end)
        size = int(record.value) if name in MOVING else 0
        count = int(record.value) if name == GPU_FAULTS else 1
        return Event(
            "unified", name, record.start, end, bytes=size, times=count, lane="unified memory"
        )
