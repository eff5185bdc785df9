"""CUPTI, NVIDIA's own recorder of what a GPU does: kernels, copies, API calls, unified memory.

It serves one subscriber in a process. Where it cannot be had, the reason is said and the runtime's
CUDA events have to do. Records come in buffers, some time after the fact; `cupti_records` makes
events of them.

Those of unified memory come through a thread of CUPTI's own. A flush passes over it while it is not
running, which it may not be yet when a short run is over, and what it has not delivered when it is
switched off is lost. So pages are touched before the run and after it: when the record of that has
come, the thread is running, and everything before has come, too.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tilewright.runtime.cupti_records import About, Records
from tilewright.runtime.nvrtc import INSTALL
from tilewright.trace import Cost, Trace

CLOCK = "CUPTI's activity records"
KINDS = ("CONCURRENT_KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "DRIVER", "EXTERNAL_CORRELATION")
UNIFIED = "UNIFIED_MEMORY_COUNTER"
BUFFER_BYTES = 4 * 2**20
# How often both clocks are read to find what they differ by; the quickest reading counts.
READINGS = 20
FORCED = 1
# What is asked of unified memory: bytes moved to and from the device, CPU page faults, GPU page
# faults, thrashing, throttling, remote mapping.
COUNTERS = (1, 2, 3, 4, 5, 6, 7)
# How long the record of a page that was touched is waited for, with so much between looks, and how
# often the counters are switched on again if it does not come.
PATIENCE_SECONDS, PAUSE_SECONDS = 1.0, 0.001
TRIES = 2


class Refused(Exception):
    """CUPTI does not record here; says why and, where there is a way, how it would."""


class SharedPages(Protocol):
    """Memory shared by host and device, that nobody has touched."""

    addresses: range

    def touch(self) -> None: ...


@runtime_checkable
class HasPages(Protocol):
    """A runtime whose memory can be shared by host and device."""

    def shared_pages(self) -> SharedPages: ...


class CuptiCollector:
    """Records everything that the process does on a GPU, for a trace, until it is closed."""

    def __init__(
        self,
        trace: Trace,
        device: int,
        pages: Callable[[], SharedPages] | None = None,
        cupti: Any = None,
    ) -> None:
        """`pages` makes some, where memory is shared by host and device: pages that move are
        recorded, too. Refused if nothing can be recorded.
        """
        self.cupti = cupti or load()
        self.pages = pages
        self.touched: list[SharedPages] = []  # kept: their addresses must not become others'
        self.trace = trace
        self.device = device
        self.dropped = 0
        self.notices: list[str] = []
        self.numbers: dict[About, int] = {}
        self.enabled: list[Any] = []
        self.zero = 0
        try:
            self.records = Records(self.cupti)
            self.subscriber = self.cupti.subscribe(_nothing, None)
        except Exception as error:
            raise Refused(self._reason(error)) from error
        try:
            self.cupti.activity_register_callbacks(_request, self.records.take)
            self._enable_unified()  # first: what is done to try it is not recorded
            for name in KINDS:
                self._enable(name)
        except Exception as error:
            self.close()
            raise Refused(self._reason(error)) from error
        self._read_clocks()

    @contextmanager
    def about(self, layers: tuple[str, ...], cost: Cost | None = None) -> Iterator[None]:
        custom = self.cupti.ExternalCorrelationKind.CUSTOM0
        key = About(layers, cost, self.trace.moved)
        number = self.numbers.get(key)
        if number is None:
            number = self.numbers[key] = len(self.numbers) + 1
            self.records.known[number] = key
        self.cupti.activity_push_external_correlation_id(custom, number)
        try:
            yield
        finally:
            self.cupti.activity_pop_external_correlation_id(custom)

    def collect(self, flag: int = 0) -> None:
        with self.trace.reading():
            self.cupti.activity_flush_all(flag)
            self._read_clocks()
            for event in self.records.events(self.zero, final=flag == FORCED):
                self.trace.add(event)
            self._count_dropped()

    def close(self) -> None:
        """Take what is left, and let go of CUPTI; also after a fault, when it may not answer."""
        last = (self._await_pages, partial(self.collect, FORCED)) if self.enabled else ()
        try:
            for step in last:
                try:
                    step()
                except Exception as error:  # a fault of the device, or a record that is unreadable
                    self.notices.append(f"the last records are lost: {self._reason(error)}")
        finally:
            # After a fault CUPTI refuses this, too, and there is nothing more to save.
            for kind in self.enabled:
                with suppress(Exception):
                    self.cupti.activity_disable(kind)
            self.enabled.clear()
            self.touched.clear()
            with suppress(Exception):
                self.cupti.unsubscribe(self.subscriber)

    def _enable(self, name: str) -> None:
        kind = getattr(self.cupti.ActivityKind, name)
        self.cupti.activity_enable(kind)
        self.enabled.append(kind)

    def _enable_unified(self) -> None:
        """Page faults and migrations; a device or driver without them has all the rest."""
        if self.pages is None:
            return
        configs = (_CounterConfig * len(COUNTERS))(
            *(_CounterConfig(1, kind, self.device, 1) for kind in COUNTERS)
        )
        try:
            for _ in range(TRIES):
                self.cupti.activity_configure_unified_memory_counter(
                    ctypes.addressof(configs), len(COUNTERS)
                )
                self._enable(UNIFIED)
                if self._await_pages():
                    return
                self.cupti.activity_disable(self.enabled.pop())
            reason = "CUPTI has no record of pages that were touched"
        except Exception as error:
            reason = self._reason(error)
        self.pages = None
        self.notices.append(f"no unified-memory counters: {reason}")

    def _await_pages(self) -> bool:
        """Touch pages and wait for the record of it. False if it does not come."""
        if self.pages is None:
            return True
        with self.trace.reading():
            pages = self.pages()
            self.touched.append(pages)
            self.records.own.append(pages.addresses)
            self.records.own_seen = False
            pages.touch()
            end = time.monotonic() + PATIENCE_SECONDS
            while time.monotonic() < end:
                self.cupti.activity_flush_all(FORCED)
                if self.records.own_seen:
                    return True
                time.sleep(PAUSE_SECONDS)
        return False

    def _read_clocks(self) -> None:
        """CUPTI's time at which the trace began, in its nanoseconds: too many for a float."""
        readings = []
        for _ in range(READINGS):
            before, stamp, after = self.trace.now(), self.cupti.get_timestamp(), self.trace.now()
            readings.append((after - before, stamp - round(1e9 * 0.5 * (before + after))))
        self.zero = min(readings)[1]

    def _count_dropped(self) -> None:
        count = np.zeros(1, np.uint64)
        self.cupti.activity_get_num_dropped_records(0, 0, count.ctypes.data)
        self.dropped += int(count[0])

    def _reason(self, error: Exception) -> str:
        status = getattr(error, "status", None)
        name = str(error) if status is None else str(self.cupti.Result(status).name)
        if "MULTIPLE_SUBSCRIBERS" in name:
            return "another profiler has CUPTI, which serves one in a process"
        if "PRIVILEGES" in name:
            return (
                "the driver lets only administrators profile "
                "(NVreg_RestrictProfilingToAdminUsers=0 in its options allows everyone)"
            )
        return f"CUPTI says {' '.join(name.split())}"


class _CounterConfig(ctypes.Structure):
    """CUpti_ActivityUnifiedMemoryCounterConfig: scope (1: of one device), kind, device, on."""

    _fields_ = (
        ("scope", ctypes.c_int),
        ("kind", ctypes.c_int),
        ("device", ctypes.c_uint32),
        ("enable", ctypes.c_uint32),
    )


def load() -> Any:
    """CUPTI's Python module, if it works here."""
    try:
        cupti = import_module("cupti.cupti")
        cupti.get_timestamp()
    except ModuleNotFoundError as error:
        name = "cupti-python" if error.name in ("cupti", "cupti.cupti") else error.name
        raise Refused(f"{name} is not installed: {INSTALL}") from error
    except Exception as error:
        raise Refused(f"CUPTI does not load: {' '.join(str(error).split())}") from error
    return cupti


def _request() -> tuple[int, int]:
    """The size of a buffer, and how many records may be in it: as many as fit."""
    return BUFFER_BYTES, 0


def _nothing(*given: Any) -> None:
    """A subscriber needs a function; none of its events is switched on."""
