from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.profiling.order import Ordered
from tilewright.profiling.wall import (
    COPIES,
    HOST,
    IDLE,
    KERNELS,
    LAUNCH,
    PRIORITY,
    WallClock,
    part_of,
)
from tilewright.trace import Event

KINDS = ("kernel", "copy", "memset", "api", "layer", "host", "unified", "profiler", "phase")
drawn = st.builds(
    lambda kind, name, start, length, size: Event(kind, name, start, start + length, bytes=size),
    st.sampled_from(KINDS), st.sampled_from(["cuLaunchKernel", "cudaStreamSynchronize"]),
    st.integers(-5, 60), st.integers(0, 30), st.integers(0, 1),
)  # fmt: skip


def divided(events, start=0, end=50):
    clock = WallClock(start)
    ordered = Ordered(clock)
    for event in events:
        ordered(event)
    clock.stop(end)
    ordered.settle()
    return clock.finish()


@given(st.lists(drawn, max_size=12))
def test_every_moment_belongs_to_the_first_part_that_goes_on(events):
    """Against the definition, moment by moment: times are whole numbers here."""
    expected = dict.fromkeys((*PRIORITY, HOST), 0)
    for moment in range(50):
        on = {part_of(e) for e in events if e.start <= moment < e.end}
        expected[next((part for part in PRIORITY if part in on), HOST)] += 1
    wall = divided(events)
    assert wall.parts == pytest.approx(expected)
    assert sum(wall.parts.values()) == pytest.approx(wall.seconds)


def test_parts_by_hand():
    wall = divided(
        [
            Event("kernel", "k", 10, 20),
            Event("copy", "host to device", 15, 25, bytes=1),
            Event("api", "cuLaunchKernel", 5, 12),
            Event("api", "cudaStreamSynchronize", 24, 30),
        ]
    )
    assert wall.parts[KERNELS] == 10
    assert wall.parts[COPIES] == 5
    assert wall.parts[LAUNCH] == 5
    assert wall.parts[IDLE] == 5
    assert wall.parts[HOST] == 25


def test_what_is_outside_the_run_does_not_count():
    wall = divided([Event("kernel", "k", -10, 5), Event("kernel", "k", 45, 90)])
    assert wall.parts[KERNELS] == 10
    assert wall.seconds == 50


def test_pages_that_move_are_copies_and_faults_are_not():
    assert part_of(Event("unified", "pages host to device", 0, 1, bytes=4096)) == COPIES
    assert part_of(Event("unified", "GPU page-fault group", 0, 1)) is None
