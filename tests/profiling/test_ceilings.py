from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from tests.profiling.made import profile
from tilewright.measure import peak
from tilewright.measure.conditions import CpuTime
from tilewright.profiling import ceilings as module
from tilewright.profiling.ceilings import Known, better, ceilings, measured_again, plausible
from tilewright.profiling.result import Ceilings
from tilewright.profiling.tally import Row
from tilewright.runtime.device import CPU, CUDA
from tilewright.store import Limits, Store

FOUND = Ceilings("a CPU", 1e9, 1e8, 2, "2026-11-15")


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "ceilings", Limits(100, 2**20))


@pytest.fixture
def measured(monkeypatch):
    """What the device is measured as, one after the other; the last for ever."""
    made = [Known(FOUND, "")]
    taken = []

    def measure(device, name, precision):
        taken.append(made[min(len(taken), len(made) - 1)])
        return taken[-1]

    monkeypatch.setattr(module, "_processors", lambda device: 2)
    monkeypatch.setattr(module, "measure", measure)
    measure.made, measure.taken = made, taken
    return measure


def entry(store):
    (path,) = store.entries()
    return path.name.removesuffix(".kept")


def test_they_are_measured_once_and_kept(store, measured):
    assert ceilings(CPU, "a CPU", store=store) == (FOUND, None)
    assert ceilings(CPU, "a CPU", store=store) == (FOUND, None)
    assert len(measured.taken) == 1


KEPT = {"disturbed": "", **asdict(FOUND), "flops": 2e9}
WRONG = [
    {"flops": -5.0}, {"flops": float("nan")}, {"flops": 1e99}, {"flops": 1e13}, {"bytes": 1e99},
    {"flops": float("inf")}, {"bytes": "abc"}, {"bytes": 0.0}, {"date": 5}, {"precision": "fp16"},
    {"processors": -1}, {"processors": 10**9}, {"device": "another"}, {"more": 1},
    {"disturbed": None}, {"flops": True},
]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "[" * 100_000, '{"disturbed": ""}', "\0"]
    + [json.dumps({**KEPT, **each}) for each in WRONG],
)
def test_what_is_damaged_or_cannot_be_is_measured_again(store, measured, text):
    ceilings(CPU, "a CPU", store=store)
    key = entry(store)
    store.keep(key, json.dumps(KEPT).encode())
    assert ceilings(CPU, "a CPU", store=store)[0].flops == 2e9
    store.keep(key, text.encode())
    assert ceilings(CPU, "a CPU", store=store) == (FOUND, None)
    assert len(measured.taken) == 2


def test_a_file_that_was_changed_is_measured_again(store, measured):
    ceilings(CPU, "a CPU", store=store)
    (path,) = store.entries()
    path.write_bytes(path.read_bytes().replace(b"1000000000.0", b"9000000000.0"))
    assert ceilings(CPU, "a CPU", store=store)[0].flops == 1e9
    assert len(measured.taken) == 2


def test_another_version_measures_again(store, measured, monkeypatch):
    ceilings(CPU, "a CPU", store=store)
    monkeypatch.setattr(module, "__version__", "another")
    ceilings(CPU, "a CPU", store=store)
    assert len(measured.taken) == 2


def test_a_busy_machine_says_so_and_measures_again_next_time(store, measured):
    busy = Known(replace(FOUND, flops=0.5e9), "the machine was busy: 40 % of CPU time was others'")
    measured.made[:] = [busy, busy, Known(FOUND, "")]
    found, problem = ceilings(CPU, "a CPU", store=store)
    assert found.flops == 0.5e9
    assert "may be too low: when they were measured, the machine was busy: 40 %" in problem
    assert "too low" in ceilings(CPU, "a CPU", store=store)[1]
    assert ceilings(CPU, "a CPU", store=store) == (FOUND, None)
    assert ceilings(CPU, "a CPU", store=store) == (FOUND, None)
    assert len(measured.taken) == 3


def test_a_run_that_beats_them_has_them_measured_again_and_the_best_is_kept(store, measured):
    low, high = replace(FOUND, flops=0.5e9, bytes=2e8), replace(FOUND, date="2026-11-16")
    measured.made[:] = [Known(low, ""), Known(high, "")]
    assert ceilings(CPU, "a CPU", store=store)[0] == low
    assert ceilings(CPU, "a CPU", at_least=0.4e9, store=store)[0] == low
    best = replace(high, bytes=2e8)
    assert ceilings(CPU, "a CPU", at_least=0.8e9, store=store) == (best, None)
    assert ceilings(CPU, "a CPU", store=store) == (best, None)
    assert len(measured.taken) == 2
    # What nothing can reach is not tried for ever.
    assert ceilings(CPU, "a CPU", at_least=5e9, store=store)[0].flops == 1e9
    assert len(measured.taken) == 2 + 1 + module.MORE_TRIES


def test_the_better_of_two():
    low, high = Known(FOUND, ""), Known(replace(FOUND, flops=2e9, bytes=1e7), "busy")
    for one, other in ((low, high), (high, low)):
        best = better(one, other)
        assert (best.ceilings.flops, best.ceilings.bytes) == (2e9, 1e8)
        assert best.disturbed == ""
    blind = Known(replace(FOUND, flops=None, bytes=None), "")
    assert better(blind, blind) == blind


def test_a_profile_that_beats_its_ceilings_gets_new_ones(measured, monkeypatch):
    kept = replace(FOUND, device="a GPU")
    measured.made[:] = [Known(replace(kept, flops=4e9), "")]
    row = Row("kernel", "k", ("conv1",), 1, 1e-3, 1e-3, 1e-3, flops=3_000_000, least_bytes=9)
    slow = profile(rows=(row,), ceilings=kept, device=CPU)
    again = measured_again(slow)
    assert again.ceilings.flops == 4e9
    assert measured_again(again) is again
    stopped = replace(slow, stopped="interrupted after 1 of 2 images")
    assert measured_again(stopped) is stopped
    assert measured_again(replace(slow, ceilings=None)).ceilings is None


@pytest.mark.parametrize(
    ("device", "change", "fine"),
    [
        (CPU, {"flops": 2e12}, True), (CPU, {"flops": 2.1e12}, False),
        (CUDA, {"flops": 1e15, "processors": 132}, True), (CUDA, {"flops": 1e99}, False),
        (CUDA, {"flops": None, "bytes": None}, True), (CUDA, {"bytes": float("nan")}, False),
    ],
)  # fmt: skip
def test_what_a_device_could_do_at_all(device, change, fine):
    assert plausible(replace(FOUND, **change), device) is fine


def test_a_cache_that_cannot_be_written_is_said(tmp_path, measured):
    (tmp_path / "file").write_text("")
    nowhere = Store(tmp_path / "file" / "below", Limits(100, 2**20))
    found, problem = ceilings(CPU, "a CPU", store=nowhere)
    assert found.flops == 1e9
    assert "not kept" in problem


@pytest.mark.parametrize(
    ("peaks", "busy", "disturbed"),
    [
        ((1e9, 1e9), 0.0, ""),
        ((1e9, 0.8e9), 0.0, "the peak came out as 1 and 0.8 GFLOP/s"),
        ((1e9, 1e9), 8.0, "the machine was busy: 80 % of CPU time was others'"),
    ],
)
def test_a_disturbed_measurement_is_recognised(monkeypatch, peaks, busy, disturbed):
    found = iter(peaks)
    monkeypatch.setattr(module, "measured_peak", lambda device, precision: next(found))
    monkeypatch.setattr(module, "measured_bandwidth", lambda device: 1e8)
    times = iter([CpuTime(0, 0, 0, 0), CpuTime(10, 1 + busy, 0, 1)])
    monkeypatch.setattr("tilewright.measure.conditions.read_times", lambda: next(times))
    known = module.measure(CPU, "this")
    assert known.ceilings.flops == 1e9
    assert known.disturbed == disturbed


def test_this_cpu_has_both(monkeypatch):
    monkeypatch.setattr(peak, "MOVED_BYTES", 2**22)
    found = module.measure(CPU, "this").ceilings
    assert found.flops > 1e8
    assert found.bytes > 1e8
    assert found.processors >= 1
    assert plausible(found, CPU)
