"""The CUPTI collector without a GPU, on a stand-in that answers as CUPTI did on one."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from tests.runtime.fake_cupti import (
    ActivityKind,
    ActivityMemcpyKind,
    ActivityUnifiedMemoryCounterKind,
    FakeCupti,
    Result,
)
from tests.test_trace import ticking
from tilewright.runtime import cupti
from tilewright.runtime.cupti import CuptiCollector, Refused, load
from tilewright.trace import Cost, Trace

COST = Cost(100, 40)


def opened(fails=None, unified=False, **delays):
    trace = Trace(clock=ticking(1e-6), detailed=True)
    fake = FakeCupti(lambda: trace.clock() - trace.origin, fails, **delays)
    return trace, fake, CuptiCollector(trace, 0, fake.pages if unified else None, fake)


def test_kernels_and_copies_know_their_layers_calls_and_cost():
    trace, fake, collector = opened()
    with collector.about(("conv1",)):
        fake.copy(ActivityMemcpyKind.HTOD, 3072)
    with collector.about(("conv1", "relu1"), COST):
        fake.launch("direct_conv")
    fake.call(ActivityKind.RUNTIME, 131)
    collector.collect()
    events = {event.name: event for event in trace.events}
    kernel, copy = events["direct_conv"], events["host to device"]
    assert (kernel.kind, kernel.layers, kernel.cost) == ("kernel", ("conv1", "relu1"), COST)
    assert (kernel.grid, kernel.block, kernel.lane) == ((64, 1, 2), (16, 16, 1), "stream 7")
    assert (copy.kind, copy.layers, copy.bytes, copy.cost) == ("copy", ("conv1",), 3072, None)
    assert kernel.correlation == events["cuLaunchKernel"].correlation
    assert copy.correlation == events["cudaMemcpyAsync"].correlation
    assert events["cudaStreamSynchronize"].layers == ()
    assert events["reading records"].kind == "profiler"


def test_times_are_the_hosts():
    """CUPTI counts nanoseconds since 1970: more than a float can tell apart."""
    trace, fake, collector = opened()
    before = trace.now()
    fake.launch("k", length=1234)
    after = trace.now()
    collector.collect()
    (kernel,) = trace.of("kernel")
    (call,) = trace.of("api")
    assert before - 2e-6 <= call.start <= after + 2e-6
    assert kernel.seconds == pytest.approx(1234e-9, abs=1e-12)
    assert call.start < kernel.start


def test_another_profiler_has_cupti():
    with pytest.raises(Refused, match="another profiler has CUPTI, which serves one in a process"):
        opened({"subscribe": Result.ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED})


def test_no_permission():
    fails = {"enable CONCURRENT_KERNEL": Result.ERROR_INSUFFICIENT_PRIVILEGES}
    trace = Trace(clock=ticking(1e-6))
    fake = FakeCupti(lambda: 0.0, fails)
    with pytest.raises(Refused, match="only administrators profile"):
        CuptiCollector(trace, 0, None, fake)
    assert not fake.subscribed
    assert fake.enabled == []


def test_a_refusal_half_way_leaves_nothing_switched_on():
    fake = FakeCupti(lambda: 0.0, {"enable DRIVER": Result.ERROR_UNKNOWN})
    with pytest.raises(Refused, match="CUPTI says ERROR_UNKNOWN"):
        CuptiCollector(Trace(), 0, None, fake)
    assert not fake.subscribed
    assert fake.enabled == []


def test_unified_memory_counters():
    trace, fake, collector = opened(unified=True)
    counters = ActivityUnifiedMemoryCounterKind
    fake.unified(counters.BYTES_TRANSFER_HTOD, 8192, 2500)
    fake.unified(counters.BYTES_TRANSFER_DTOH, 4096, 1500)
    fake.unified(counters.GPU_PAGE_FAULT, 22, 30_000)
    fake.unified(counters.CPU_PAGE_FAULT_COUNT, 139_811_185_161_931)
    fake.unified(counters.THRASHING, 4096)
    collector.close()
    found = {event.name: event for event in trace.of("unified")}
    assert found["pages host to device"].bytes == 8192
    assert found["pages device to host"].seconds == pytest.approx(1500e-9)
    assert found["GPU page-fault group"].times == 22
    # The value of a CPU page fault is where the program was: it is one fault, and moved nothing.
    fault = found["CPU page fault"]
    assert (fault.times, fault.bytes, fault.seconds) == (1, 0, 0)
    assert found["thrash"].seconds == 0
    assert fake.configured == 7


@pytest.mark.parametrize(
    "delays", [{}, {"asleep": 3}, {"late": 2}, {"asleep": 5, "late": 3}], ids=str
)
def test_pages_of_a_run_that_is_over_at_once(delays):
    """CUPTI's thread for them may not run yet, and may be behind."""
    trace, fake, collector = opened(unified=True, **delays)
    fake.unified(ActivityUnifiedMemoryCounterKind.BYTES_TRANSFER_HTOD, 4096, 10, address=64)
    fake.launch("k")
    fake.unified(ActivityUnifiedMemoryCounterKind.GPU_PAGE_FAULT, 3, 10, address=64)
    collector.close()
    assert [event.name for event in trace.of("unified")] == [
        "pages host to device", "GPU page-fault group",
    ]  # fmt: skip
    assert len(trace.of("kernel")) == 1
    assert collector.notices == []
    assert collector.touched == []


def test_the_next_run_of_a_process_has_its_pages_too():
    _, fake, collector = opened(unified=True, asleep=2)
    collector.close()
    trace = Trace(clock=ticking(1e-6))
    collector = CuptiCollector(trace, 0, fake.pages, fake)
    fake.unified(ActivityUnifiedMemoryCounterKind.GPU_PAGE_FAULT, 3, 10)
    collector.close()
    assert len(trace.of("unified")) == 1


def test_pages_that_are_never_recorded_are_said_to_be_missing(monkeypatch):
    monkeypatch.setattr(cupti, "PATIENCE_SECONDS", 0.01)
    trace, fake, collector = opened(unified=True, late=10**9)
    assert ActivityKind.UNIFIED_MEMORY_COUNTER not in fake.enabled
    fake.launch("k")
    collector.close()
    assert len(trace.of("kernel")) == 1
    assert collector.notices == [
        "no unified-memory counters: CUPTI has no record of pages that were touched"
    ]


def test_counters_that_work_when_switched_on_again(monkeypatch):
    """The first time, nothing came in time."""
    monkeypatch.setattr(cupti, "PATIENCE_SECONDS", 0.01)
    trace = Trace(clock=ticking(1e-6))
    fake = FakeCupti(lambda: 0.0, asleep=10**9)
    enable = fake.activity_enable

    def second_time(kind):
        enable(kind)
        fake.asleep = 0

    fake.activity_enable = second_time
    collector = CuptiCollector(trace, 0, fake.pages, fake)
    fake.unified(ActivityUnifiedMemoryCounterKind.GPU_PAGE_FAULT, 3, 10)
    collector.close()
    assert len(trace.of("unified")) == 1
    assert collector.notices == []


def test_after_a_fault_no_pages_can_be_made():
    """What was recorded until then is there all the same."""
    trace, fake, collector = opened(unified=True)
    fake.launch("k")
    collector.pages = lambda: 1 / 0
    collector.close()
    assert len(trace.of("kernel")) == 1
    assert collector.notices == ["the last records are lost: CUPTI says division by zero"]


def test_what_the_profiler_does_to_try_the_counters_is_not_the_runs():
    trace, fake, collector = opened(unified=True)
    assert trace.of("api", "unified") == []
    pages = fake.pages

    def called():
        fake.call(ActivityKind.RUNTIME, 41)
        return pages()

    collector.pages = called
    collector.close()
    (call,) = trace.of("api")
    assert any(
        reading.start <= call.start <= reading.end for reading in trace.of("profiler")
    )  # so it goes no further


def test_without_unified_memory_counters_the_rest_goes_on():
    trace, fake, collector = opened({"configure": Result.ERROR_UM_PROFILING_NOT_SUPPORTED}, True)
    fake.launch("k")
    collector.close()
    assert len(trace.of("kernel")) == 1
    assert collector.notices == [
        "no unified-memory counters: CUPTI says ERROR_UM_PROFILING_NOT_SUPPORTED"
    ]


def test_dropped_records_are_counted():
    _, fake, collector = opened()
    fake.to_drop = 5
    collector.collect()
    fake.to_drop = 2
    collector.close()
    assert collector.dropped == 7


def test_after_a_fault_cupti_may_not_answer():
    _, fake, collector = opened()
    fake.fails["flush"] = Result.ERROR_UNKNOWN
    collector.close()
    assert collector.notices == ["the last records are lost: CUPTI says ERROR_UNKNOWN"]
    assert not fake.subscribed
    assert fake.enabled == []


def test_a_record_that_cannot_be_read_is_an_error():
    """CUPTI swallows what its callback raises: half a buffer would be missing, and nobody know."""
    _, fake, collector = opened()
    fake.waiting.append(SimpleNamespace(kind=10))
    with pytest.raises(AttributeError):
        collector.collect()


def test_ctrl_c_while_events_are_passed_on_loses_none(press_ctrl_c):
    trace, fake, collector = opened()
    for _ in range(100):
        fake.launch("k")
    pressed = []

    def press(event):
        if not pressed:
            pressed.append(press_ctrl_c())

    trace.sinks = (press,)
    with pytest.raises(KeyboardInterrupt):
        collector.collect()
    assert len(trace.of("kernel")) == 100


def test_a_record_that_cannot_be_read_at_the_end_is_said():
    _, fake, collector = opened()
    fake.waiting.append(SimpleNamespace(kind=10))
    collector.close()
    assert collector.notices[0].startswith("the last records are lost: CUPTI says")
    assert not fake.subscribed


def test_a_version_that_lacks_something_is_refused():
    fake = FakeCupti(lambda: 0.0)
    fake.ActivityKind = SimpleNamespace(RUNTIME=5)
    with pytest.raises(Refused, match=r"CUPTI says .* has no attribute"):
        CuptiCollector(Trace(), 0, None, fake)


def test_after_a_fault_it_lets_go_whatever_fails():
    _, fake, collector = opened()
    fake.activity_disable = fake.unsubscribe = lambda *given: 1 / 0
    collector.close()
    assert collector.enabled == []


def test_it_can_be_used_again():
    _, fake, collector = opened()
    collector.close()
    CuptiCollector(Trace(), 0, None, fake).close()


def test_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupti", None)
    monkeypatch.setitem(sys.modules, "cupti.cupti", None)
    with pytest.raises(Refused, match=r"cupti-python is not installed: pip install 'tilewright\["):
        load()


def test_something_it_needs_is_not_installed(monkeypatch):
    def fail(name):
        raise ModuleNotFoundError("No module named 'elftools'", name="elftools")

    monkeypatch.setattr("tilewright.runtime.cupti.import_module", fail)
    with pytest.raises(Refused, match="elftools is not installed: pip install"):
        load()


def test_installed_but_no_driver(monkeypatch):
    def fail():
        raise RuntimeError("CUDA driver is not found")

    module = ModuleType("cupti.cupti")
    module.get_timestamp = fail
    monkeypatch.setitem(sys.modules, "cupti", ModuleType("cupti"))
    monkeypatch.setitem(sys.modules, "cupti.cupti", module)
    with pytest.raises(Refused, match="CUPTI does not load: CUDA driver is not found"):
        load()
