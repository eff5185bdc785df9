"""A stand-in for the module `cupti.cupti`: records are made by hand, refusals on demand."""

from __future__ import annotations

import ctypes
import enum
import itertools
from types import SimpleNamespace


class ActivityKind(enum.IntEnum):
    MEMCPY, MEMSET, DRIVER, RUNTIME, CONCURRENT_KERNEL = 1, 2, 4, 5, 10
    OVERHEAD, UNIFIED_MEMORY_COUNTER, EXTERNAL_CORRELATION = 17, 25, 39


class ActivityMemcpyKind(enum.IntEnum):
    HTOD, DTOH, DTOD, PTOP = 1, 2, 8, 10


class ActivityUnifiedMemoryCounterKind(enum.IntEnum):
    BYTES_TRANSFER_HTOD, BYTES_TRANSFER_DTOH, CPU_PAGE_FAULT_COUNT, GPU_PAGE_FAULT = 1, 2, 3, 4
    THRASHING, THROTTLING, REMOTE_MAP, BYTES_TRANSFER_DTOD = 5, 6, 7, 8


class CallbackDomain(enum.IntEnum):
    DRIVER_API, RUNTIME_API = 1, 2


class ExternalCorrelationKind(enum.IntEnum):
    CUSTOM0 = 3


class Result(enum.IntEnum):
    ERROR_INSUFFICIENT_PRIVILEGES, ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED = 35, 39
    ERROR_UM_PROFILING_NOT_SUPPORTED, ERROR_UNKNOWN = 40, 999


class cuptiError(Exception):
    def __init__(self, status):
        self.status = status
        super().__init__(f"{Result(status).name} ({status})")


NAMES = {
    (CallbackDomain.RUNTIME_API, 41): "cudaMemcpyAsync_v3020",
    (CallbackDomain.RUNTIME_API, 131): "cudaStreamSynchronize_v3020",
    (CallbackDomain.DRIVER_API, 307): "cuLaunchKernel",
    (CallbackDomain.DRIVER_API, 276): "cuMemcpyHtoDAsync_v2_ptsz",
}


class FakeCupti:
    """Does what CUPTI did on an H200 (cupti-python 13.0.1, driver 580), with a clock of its own.

    `fails` has the status that a function fails with, by its name. Records of unified memory come
    through a thread: the first `asleep` flushes after it is switched on pass over it, a record
    comes `late` flushes after it was made, and what has not come is lost when it is switched off.
    """

    ActivityKind, ActivityMemcpyKind, Result = ActivityKind, ActivityMemcpyKind, Result
    ActivityUnifiedMemoryCounterKind = ActivityUnifiedMemoryCounterKind
    CallbackDomain, ExternalCorrelationKind = CallbackDomain, ExternalCorrelationKind
    cuptiError = cuptiError

    def __init__(self, clock, fails=None, offset=1_794_730_816_368_693_688, asleep=0, late=0):
        self.clock, self.fails, self.offset = clock, fails or {}, offset
        self.asleep, self.late, self.flushes, self.awake_at = asleep, late, 0, 0
        self.moved = []
        self.enabled, self.pushed, self.waiting = [], [], []
        self.subscribed = False
        self.configured = self.to_drop = 0
        self.correlations = itertools.count(1)
        self.places = itertools.count(0x7F0000000000, 0x1000)
        self.complete = lambda records: None

    def _may_fail(self, name):
        if name in self.fails:
            raise cuptiError(self.fails[name])

    def subscribe(self, callback, userdata):
        self._may_fail("subscribe")
        if self.subscribed:
            raise cuptiError(Result.ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
        self.subscribed = True
        return 7

    def unsubscribe(self, subscriber):
        assert subscriber == 7
        self.subscribed = False

    def activity_register_callbacks(self, request, complete):
        size, most = request()
        assert size > 0
        assert most == 0
        self.complete = complete

    def activity_enable(self, kind):
        self._may_fail(f"enable {kind.name}")
        if kind == ActivityKind.UNIFIED_MEMORY_COUNTER:
            assert self.configured, "the counters are configured before they are switched on"
            self.awake_at = self.flushes + self.asleep
        self.enabled.append(kind)

    def activity_disable(self, kind):
        self.enabled.remove(kind)
        if kind == ActivityKind.UNIFIED_MEMORY_COUNTER:
            self.moved.clear()

    def activity_configure_unified_memory_counter(self, config, count):
        self._may_fail("configure")
        assert ActivityKind.UNIFIED_MEMORY_COUNTER not in self.enabled, "CUPTI refuses it then"
        numbers = (ctypes.c_uint32 * (4 * count)).from_address(config)
        assert all(scope == 1 for scope in numbers[::4])
        assert list(numbers[1::4]) == list(range(1, count + 1))
        assert all(enable == 1 for enable in numbers[3::4])
        self.configured = count

    def activity_push_external_correlation_id(self, kind, number):
        self.pushed.append(number)

    def activity_pop_external_correlation_id(self, kind):
        return self.pushed.pop()

    def activity_flush_all(self, flag):
        self._may_fail("flush")
        waiting, self.waiting = self.waiting, []
        self.flushes += 1
        if self.flushes > self.awake_at:
            waiting += [record for due, record in self.moved if due < self.flushes]
            self.moved = [(due, record) for due, record in self.moved if due >= self.flushes]
        self.complete([record for record in waiting if record.kind in self.enabled])

    def activity_get_num_dropped_records(self, context, stream, place):
        ctypes.c_uint64.from_address(place).value = self.to_drop
        self.to_drop = 0

    def get_timestamp(self):
        return self.offset + round(1e9 * self.clock())

    def get_callback_name(self, domain, cbid):
        return NAMES[domain, cbid]

    # What a program does on the GPU, as records.

    def call(self, kind, cbid, length=1000):
        number, start = next(self.correlations), self.get_timestamp()
        if self.pushed:
            self.waiting.append(
                SimpleNamespace(kind=39, correlation_id=number, external_id=self.pushed[-1])
            )
        self.waiting.append(
            SimpleNamespace(
                kind=int(kind), cbid=cbid, start=start, end=start + length, correlation_id=number,
                thread_id=99,
            )
        )  # fmt: skip
        return number

    def launch(self, name, length=4000):
        number, start = self.call(ActivityKind.DRIVER, 307), self.get_timestamp() + 2000
        grid = {f"grid_{axis}": size for axis, size in zip("xyz", (64, 1, 2), strict=True)}
        block = {f"block_{axis}": size for axis, size in zip("xyz", (16, 16, 1), strict=True)}
        self.waiting.append(
            SimpleNamespace(
                kind=10, name=name, start=start, end=start + length, correlation_id=number,
                stream_id=7, **grid, **block,
            )
        )  # fmt: skip

    def copy(self, kind, size):
        number, start = self.call(ActivityKind.RUNTIME, 41), self.get_timestamp() + 500
        self.waiting.append(
            SimpleNamespace(
                kind=1, copy_kind=int(kind), bytes=size, start=start, end=start + 2000,
                correlation_id=number, stream_id=7,
            )
        )  # fmt: skip

    def unified(self, kind, value, length=None, address=0):
        if ActivityKind.UNIFIED_MEMORY_COUNTER not in self.enabled:
            return
        start = self.get_timestamp()
        end = 0 if length is None else start + length
        record = SimpleNamespace(
            kind=25, counter_kind=int(kind), value=value, start=start, end=end, address=address
        )
        self.moved.append((self.flushes + self.late, record))

    def pages(self):
        """Shared memory that nobody has touched."""
        return FakePages(self, next(self.places))


class FakePages:
    def __init__(self, fake, place):
        self.fake, self.addresses = fake, range(place, place + 0x1000)

    def touch(self):
        fault = ActivityUnifiedMemoryCounterKind.CPU_PAGE_FAULT_COUNT
        self.fake.unified(fault, 1, address=self.addresses.start)
        self.fake.unified(fault, 1, address=self.addresses[-1])
