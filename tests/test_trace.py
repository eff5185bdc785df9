from __future__ import annotations

import pytest

from tilewright.trace import Event, Trace


def ticking(step=1.0):
    now = -step

    def clock():
        nonlocal now
        now += step
        return now

    return clock


def test_a_phase_is_recorded_also_when_it_fails():
    trace = Trace(clock=ticking())
    with pytest.raises(RuntimeError), trace.phase("load data"):
        raise RuntimeError
    (event,) = trace.events
    assert (event.kind, event.name, event.start, event.end) == ("phase", "load data", 1, 2)
    assert trace.phase_seconds("load data") == 1


def test_events_are_chosen_by_kind():
    trace = Trace()
    trace.add(Event("kernel", "k", 0, 1, ("conv1",)))
    trace.add(Event("copy", "host to device", 1, 3, bytes=8))
    assert [event.seconds for event in trace.of("copy")] == [2]
    assert trace.of("kernel")[0].layers == ("conv1",)
