from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from tilewright.profiling.order import Ordered
from tilewright.profiling.tally import Tally
from tilewright.profiling.wall import WallClock
from tilewright.trace import Event, Trace


@given(st.lists(st.floats(0, 100)))
def test_events_leave_in_the_order_they_began(starts):
    seen = []
    ordered = Ordered(seen.append)
    for start in starts:
        ordered(Event("kernel", "k", start, start))
    ordered.settle(50)
    assert [event.start for event in seen] == sorted(s for s in starts if s <= 50)
    ordered.settle()
    assert [event.start for event in seen] == sorted(starts)


def test_thousands_of_events_take_no_memory():
    """A trace that keeps nothing, into all the sinks of a profile, settled as a session does."""
    tally, wall = Tally(), WallClock(0)
    ordered = Ordered(wall)
    trace = Trace(keep=False, sinks=(tally, ordered))

    def send(first, last):
        for index in range(first, last):
            trace.add(Event("kernel", f"k{index % 7}", index, index + 0.5, (f"conv{index % 3}",)))
            if index % 500 == 0:
                ordered.settle(index)

    send(0, 4_000)
    tracemalloc.start()  # slow: some of them tell as much
    send(4_000, 8_000)
    current, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5e5  # kept, they would take 1.5e6
    assert current < 5e5
    assert trace.events == []
    assert sum(row.calls for row in tally.rows({})) == 8_000
    ordered.settle()
    wall.stop(8_000)
    assert wall.finish().parts["kernels"] == 4_000
