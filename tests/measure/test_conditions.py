from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from tilewright import environment
from tilewright.environment import GpuState
from tilewright.measure import conditions
from tilewright.measure.conditions import Conditions, CpuTime, Watch, parse_times
from tilewright.results.climbed import conditions_record
from tilewright.runtime.device import Device

QUIET = Conditions((1.0, 1.01), 0.01, 0.0, 0.5)


def test_a_quiet_machine_has_no_notes():
    assert QUIET.notes == []
    assert Conditions((), None, None, 0.0).notes == []


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (Conditions((1.0,), 0.35, 0.0, 3.0), "the machine was busy: 35 % of CPU time was others'"),
        (Conditions((1.0,), 0.0, 0.10, 3.0), "10 % of CPU time was given to other machines"),
        (Conditions((1.0, 1.2), 0.0, 0.0, 1.0), "the CPU's speed moved by 20 % between rounds"),
        (
            Conditions((), None, None, 1.0, (GpuState(1980, ()), GpuState(1960, ("power cap",)))),
            "the GPU was held back in 1 of 2 looks: power cap",
        ),
        (
            Conditions((), None, None, 1.0, (GpuState(1980, ()), GpuState(1200, ()))),
            "the GPU's clock moved between 1200 and 1980 MHz",
        ),
    ],
)
def test_what_is_off_is_one_line(seen, words):
    assert seen.notes == [words]
    assert conditions_record(seen).notes == (words,)


def test_others_is_what_neither_we_nor_nobody_used():
    times = iter([CpuTime(100, 50, 1, 10), CpuTime(120, 66, 2, 19)])
    watch = Watch(spin=itertools.count(1).__next__, cpu_time=lambda: next(times))
    watch()
    watch()
    seen = watch.conditions()
    assert seen.others == pytest.approx((16 - 9) / 20)
    assert seen.stolen == pytest.approx(1 / 20)
    assert seen.spins == (1, 2)


def test_a_system_that_does_not_tell_is_not_guessed(tmp_path, monkeypatch):
    monkeypatch.setattr(conditions, "STATISTICS", tmp_path / "none")
    seen = Watch().conditions()
    assert (seen.others, seen.stolen) == (None, None)


def test_the_systems_account():
    """Of the cores that we may use: what others do elsewhere takes nothing from us."""
    text = (
        "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 20 30 400 50 1 2 7 0 0\ncpu1 8 8 8 8 8 8 8 8 0 0\n"
        "cpu10 1000 0 0 0 0 0 0 0 0 0\nintr 5 6\n"
    )
    found = parse_times(text, 100, {0}, 0.5)
    assert found.total == pytest.approx(6.10)
    assert found.busy == pytest.approx(1.53)
    assert (found.stolen, found.own) == (0.07, 0.5)
    assert parse_times(text, 100, {0, 1}, 0.5).total == pytest.approx(6.74)
    assert parse_times("intr 5\n", 100, {0}, 0.5) == CpuTime(0.0, 0.0, 0.0, 0.5)


def test_this_machine():
    watch = Watch()
    watch()
    seen = watch.conditions()
    assert len(seen.spins) == 1
    assert seen.spins[0] > 0
    assert seen.others is None or 0 <= seen.others <= 1


def test_only_the_gpu_that_is_timed_is_looked_at(monkeypatch):
    states = [GpuState(1, ()), GpuState(2, ())]
    monkeypatch.setattr(environment, "gpu_states", lambda: states)
    for device, clocks in (("cuda:1", [2]), ("cuda", [1]), ("cuda:7", []), ("opencl", [])):
        watch = Watch(Device.parse(device), spin=lambda: 1.0)
        watch()
        assert [state.megahertz for state in watch.gpu] == clocks


class Driver:
    """The library that the driver is asked by: clocks and reasons of GPUs, None if it refuses."""

    def __init__(self, *gpus):
        self.gpus = gpus

    def nvmlDeviceGetCount_v2(self, count):
        count._obj.value = len(self.gpus)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index, handle):
        handle._obj.value = index + 1
        return 0

    def nvmlDeviceGetClockInfo(self, handle, kind, clock):
        if (gpu := self.gpus[handle.value - 1]) is None:
            return 3  # not supported
        assert kind == 1
        clock._obj.value = gpu[0]
        return 0

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle, bits):
        bits._obj.value = self.gpus[handle.value - 1][1]
        return 0


def test_what_the_driver_says(monkeypatch):
    driver = Driver((1980, 0x1), (1200, 0x64), None)
    monkeypatch.setattr(environment, "_nvml", lambda: driver)
    assert environment.gpu_states() == [
        GpuState(1980, ()),
        GpuState(1200, ("power cap", "temperature")),
    ]
    for silent in (None, SimpleNamespace(nvmlDeviceGetCount_v2=lambda count: 0)):
        monkeypatch.setattr(environment, "_nvml", lambda silent=silent: silent)
        assert environment.gpu_states() == []
