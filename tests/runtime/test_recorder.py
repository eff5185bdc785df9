"""How work becomes events, whatever the device: on events that tell a made-up time."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from tests.test_trace import ticking
from tilewright.runtime import recorder
from tilewright.runtime.recorder import EventRecorder, Recorder
from tilewright.trace import Cost, Trace


class Stamped:
    """An event that remembers when its stream reached it."""

    def record(self, stream):
        self.when = stream()

    def synchronize(self):
        pass


class Device(EventRecorder):
    made = waits = 0
    recording_disturbs = True

    def hold_back(self, seconds):
        self.held.append((seconds, len(self.pending)))

    def new_event(self):
        self.made += 1
        return Stamped()

    def elapsed(self, first, last):
        return 1e3 * (last.when - first.when)

    def synchronise(self):
        self.waits += 1
        self.read_events(self.stream)


@pytest.fixture
def device():
    made = Device()
    made.stream, made.held = ticking(1e-6), []
    made.trace = Trace(clock=made.stream, detailed=True)
    return made


def test_nothing_is_recorded_unless_somebody_wants_it(device):
    device.trace = None
    assert device.timed(device.stream, "kernel", "k", ("conv1",), 0, lambda: 7) == 7
    assert device.by_host("kernel", "k", ("conv1",), 0, max, 1, 2) == 2
    device.synchronise()
    assert (device.made, device.pending) == (0, [])


def test_work_of_the_host_has_the_hosts_times(device):
    assert device.by_host("host", "sum", ("fc",), 12, lambda x, y: x + y, 1, 2) == 3
    (event,) = device.trace.events
    assert (event.kind, event.name, event.layers, event.bytes) == ("host", "sum", ("fc",), 12)
    assert event.seconds == pytest.approx(1e-6)


def test_work_of_a_device_has_the_times_of_its_events(device):
    cost = Cost(10, 4)
    with device.trace.layer(("conv1",)):
        device.timed(device.stream, "copy", "in", (), 8, lambda: None, lane="one")
        device.timed(
            device.stream, "kernel", "k", ("conv1", "relu1"), 0, lambda: None, "a launch",
            grid=(4, 1, 1), block=(16, 1, 1), cost=cost,
        )  # fmt: skip
    assert device.trace.of("kernel", "copy") == []
    device.synchronise()
    copy, kernel = device.trace.of("kernel", "copy")
    assert (copy.layers, copy.bytes, copy.lane, copy.correlation) == (("conv1",), 8, "one", 0)
    assert (kernel.layers, kernel.grid, kernel.cost) == (("conv1", "relu1"), (4, 1, 1), cost)
    (call,) = device.trace.of("api")
    assert (call.name, call.correlation) == ("a launch", kernel.correlation)
    assert 0 < copy.start < copy.end < kernel.start < kernel.end < device.trace.now()
    assert device.pending == []


def test_events_do_not_pile_up_and_are_used_again(device, monkeypatch):
    monkeypatch.setattr(recorder, "PENDING", 3)
    for _ in range(10):
        device.timed(device.stream, "kernel", "k", ("conv1",), 0, lambda: None)
    assert (device.waits, len(device.pending), len(device.trace.of("kernel"))) == (3, 1, 9)
    assert device.made == 2 * 3 + 3  # three pairs, and one a reading


def test_a_device_is_held_back_each_time_the_host_begins_anew(device):
    """Before the first kernel, and after copies and waiting, which leave the device with nothing to
    do; not between kernels, where the host would never get ahead."""

    def work(*kinds):
        for kind in kinds:
            device.timed(device.stream, kind, kind, ("conv1",), 0, lambda: None)

    work("copy", "kernel", "kernel", "copy", "copy", "kernel")
    assert (device.beginnings, device.held) == (2, [])
    device.lead = 0.25
    device.synchronise()
    work("kernel", "kernel")
    device.synchronise()
    work("copy", "kernel")
    # Nothing of that is recorded: it comes before the events of the first kernel.
    assert device.held == [(0.25, 0), (0.25, 1)]
    assert device.beginnings == 4
    device.trace = None
    work("copy", "kernel")
    assert len(device.held) == 2


def test_a_collector_is_told_instead(device):
    told = []

    class Collector:
        @contextmanager
        def about(self, layers, cost=None):
            told.append((layers, cost))
            yield

        def collect(self):
            told.append("collected")

    device.trace.collector = Collector()
    assert device.timed(device.stream, "kernel", "k", ("fc",), 0, lambda: 7, cost=Cost(1, 1)) == 7
    device.synchronise()
    assert told == [(("fc",), Cost(1, 1)), "collected"]
    assert (device.made, device.trace.events) == (0, [])


def test_every_piece_of_work_has_its_times():
    made = Recorder()
    made.trace = Trace()
    made.remember("stamp", recorder.Event("copy", "in", 0, 0))
    with pytest.raises(ValueError, match="zip"):
        made.settle(list)
