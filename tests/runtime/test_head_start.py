"""How far ahead of its device a host is let, on a clock that moves when it is told to."""

from __future__ import annotations

import pytest

from tilewright.runtime.head_start import MOST_SECONDS, HeadStart
from tilewright.runtime.recorder import EventRecorder


class Runtime(EventRecorder):
    recording_disturbs = True


class Machine:
    def __init__(self):
        self.runtime, self.now = Runtime(), 0.0
        self.head_start = HeadStart(self.runtime, clock=lambda: self.now)

    def turn(self, seconds, beginnings=1):
        """The lead that the runtime was given while the host took so long."""
        with self.head_start.given():
            self.now += seconds
            self.runtime.beginnings += beginnings
            given = self.runtime.lead
        assert self.runtime.lead == 0
        return given


def test_the_device_is_held_back_as_long_as_the_host_takes():
    machine = Machine()
    assert machine.turn(0.5) == machine.turn(0.004) == 0  # the first finds nothing warm
    # Whatever it takes from then on, the time in which the device is held back is among it.
    assert [machine.turn(0.008) for _ in range(3)] == [pytest.approx(0.004)] * 3


def test_who_begins_often_is_let_ahead_for_a_part_each_time():
    machine = Machine()
    for _ in range(2):
        machine.turn(0.010, beginnings=5)
    assert machine.turn(0.010) == pytest.approx(0.002)
    machine = Machine()
    for _ in range(2):
        machine.turn(0.010, beginnings=1000)
    assert machine.turn(0.010) == 0  # holding it back would take longer than that


def test_nobody_waits_for_long():
    machine = Machine()
    for _ in range(2):
        machine.turn(3.0, beginnings=0)
    assert machine.turn(3.0) == MOST_SECONDS


def test_a_turn_that_fails_leaves_nothing_behind():
    machine = Machine()
    machine.turn(0.1), machine.turn(0.001)
    with pytest.raises(KeyboardInterrupt), machine.head_start.given():
        assert machine.runtime.lead == pytest.approx(0.001)
        raise KeyboardInterrupt
    assert machine.runtime.lead == 0


@pytest.mark.parametrize("disturbs", [None, False])
def test_a_runtime_with_times_of_its_own_needs_none(disturbs):
    runtime = Runtime() if disturbs is False else object()
    if disturbs is False:
        runtime.recording_disturbs = False
    head_start = HeadStart(runtime)
    for _ in range(3):
        with head_start.given():
            pass
    assert head_start.seconds == 0
