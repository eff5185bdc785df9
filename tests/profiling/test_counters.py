"""What ncu prints, and what is said where it cannot count. Text as ncu 2025 writes it."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from tests.profiling.made import profile
from tilewright.job import Request
from tilewright.profiling import counters, counting, saved, stalls
from tilewright.profiling.counters import (
    COMPUTE,
    DRAM,
    DURATION,
    L2,
    OCCUPANCY,
    SHARED,
    THREADS,
    Counted,
    parse,
)
from tilewright.profiling.stalls import Stall
from tilewright.runtime.device import CUDA, OPENCL
from tilewright.views import console
from tilewright.views import profile as view

HEAD = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
    '"Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)


def line(number, kernel, metric, unit, value):
    start = f'"{number}","4711","python3.12","127.0.0.1","{kernel}","1","7","(16, 16, 1)",'
    where = '"(64, 1, 10)","0","9.0","Command line profiler metrics"'
    return f'{start}{where},"{metric}","{unit}","{value}"'


def launch(number, kernel, nanoseconds, occupancy, compute, dram, shared="10.00"):
    yield line(number, kernel, DURATION, "ns", nanoseconds)
    yield line(number, kernel, OCCUPANCY, "%", occupancy)
    yield line(number, kernel, THREADS, "", "24.00")
    yield line(number, kernel, COMPUTE, "%", compute)
    yield line(number, kernel, DRAM, "%", dram)
    yield line(number, kernel, L2, "%", "20.00")
    yield line(number, kernel, SHARED, "%", shared)


def stalled(number, kernel, **warps):
    """Warps that wait while one instruction is issued."""
    for reason, value in warps.items():
        yield line(number, kernel, stalls.metric(reason), "inst", value)


CONV = "direct_conv(const float *, float *)"
TEXT = "\n".join([
    "==PROF== Connected to process 4711 (/usr/bin/python3.12)",
    '==PROF== Profiling "direct_conv" - 0: 0%....50%....100% - 9 passes',
    HEAD,
    *launch(0, CONV, "3,000", "80.00", "90.00", "5.00"),
    *stalled(0, CONV, selected=1, not_selected=2, math_pipe_throttle=1, long_scoreboard=0),
    *launch(1, CONV, "1,000", "40.00", "50.00", "5.00"),
    *stalled(1, CONV, selected=1, not_selected=2, math_pipe_throttle=1, long_scoreboard=24),
    *launch(2, "layer_relu(float *)", "500", "70.00", "10.00", "85.50"),
    *stalled(2, "layer_relu(float *)", selected=1, long_scoreboard="n/a"),
    *launch(3, "layer_fc(float *)", "400", "9.00", "4.00", "3.00", "n/a"),
    "==PROF== Disconnected from process 4711",
])  # fmt: skip


def test_launches_of_a_kernel_are_averaged_by_their_time():
    conv, relu, fc = parse(TEXT)
    assert (conv.kernel, conv.launches) == ("direct_conv", 2)
    assert conv.seconds == pytest.approx(4e-6)
    assert conv.occupancy == pytest.approx(0.70)  # three parts of 80 % and one of 40
    assert conv.warp_efficiency == pytest.approx(0.75)
    assert conv.compute == pytest.approx(0.80)
    assert relu.dram == pytest.approx(0.855)
    assert fc.shared is None
    assert [each.says for each in (conv, relu, fc)] == [
        "limited by compute", "limited by device memory", "latency: too few warps",
    ]  # fmt: skip


def test_the_time_of_a_warp_goes_by_reasons_that_are_averaged_by_launches_time():
    conv, relu, fc = parse(TEXT)
    # of three parts 0 and one of 24 warps: 6, beside 1, 2 and 1
    assert [(each.reason, each.share) for each in conv.stalls] == [
        ("long_scoreboard", pytest.approx(0.6)), ("not_selected", pytest.approx(0.2)),
        ("math_pipe_throttle", pytest.approx(0.1)), ("selected", pytest.approx(0.1)),
    ]  # fmt: skip
    assert stalls.worst(conv.stalls).what.short == "device memory"
    assert stalls.worst(relu.stalls) is None, "a warp that is at work is not held up"
    assert fc.stalls == ()


def test_what_says_latency_says_for_what():
    some = Counted("k", 1, 1e-6, 0.5, 1.0, 0.4, 0.2, 0.1, None)
    assert some.says == "latency: warps wait"
    waiting = replace(some, stalls=(Stall("selected", 0.7), Stall("barrier", 0.3)))
    assert waiting.says == "latency: a barrier"


def test_a_reason_that_a_later_version_counts_is_shown_by_its_name():
    some = Counted("k", 1, 1e-6, 0.5, 1.0, 0.4, 0.2, 0.1, None, (Stall("far_away", 1.0),))
    kept = saved.profile_of(saved.record(profile(counters=(some,))))
    assert some.says == "latency: far away"
    lines = [" ".join(each.split()) for each in console.text(view.report(kept)).splitlines()]
    assert "k 100.0 % far away *" in lines


def test_warpgroups_are_asked_of_hopper_alone():
    assert stalls.metric("gmma") in stalls.metrics(90)
    assert {*stalls.metrics(90)} - {*stalls.metrics(100)} == {stalls.metric("gmma")}
    assert stalls.metrics(80) == stalls.metrics(120)


def test_what_is_no_table_has_no_kernels():
    assert parse("") == parse("==PROF== Connected\n==ERROR== no") == parse(HEAD) == ()


PERMISSION = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
    "Performance Counters on the target device 0."
)


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        (PERMISSION, "only administrators read counters (NVreg_RestrictProfilingToAdminUsers=0"),
        ("==ERROR== Failed to find metric x", "ncu says: Failed to find metric x"),
        ("", "ncu failed"),
    ],
)
def test_why_nothing_was_counted(printed, words, monkeypatch):
    given = []

    def run(command, **how):
        given.append(command)
        return subprocess.CompletedProcess(command, 1, printed, "")

    monkeypatch.setattr(counting.shutil, "which", lambda name: "/bin/ncu")
    monkeypatch.setattr(counting.subprocess, "run", run)
    monkeypatch.setattr(counting, "_capability", lambda device: 90)
    found, why = counting.counted(Request(device=CUDA), CUDA)
    assert found == () and words in why
    asked = ",".join((*counters.METRICS, *stalls.metrics(90)))
    assert given[0][:2] == ["/bin/ncu", "--csv"] and asked in given[0]


def test_without_ncu_or_on_another_device_it_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(counting.shutil, "which", lambda name: None)
    monkeypatch.setattr(counting, "USUAL", tmp_path / "none")
    assert "is not on the PATH" in counting.counted(Request(device=CUDA), CUDA)[1]
    assert "opencl has none" in counting.counted(Request(device=OPENCL), OPENCL)[1]


def test_they_are_shown_and_kept():
    some = profile(counters=parse(TEXT))
    text = console.text(view.report(some))
    lines = [" ".join(each.split()) for each in text.splitlines()]
    assert "direct_conv 2 70.0 % 75.0 % 80.0 % 5.0 % 20.0 % 10.0 % limited by compute" in lines
    waits = "long scoreboard * data is still on its way from device memory or L2"
    assert f"direct_conv 60.0 % {waits}" in lines
    assert saved.profile_of(saved.record(some)) == some
    none = console.text(view.report(profile(uncounted="ncu is not on the PATH")))
    assert "Counters: not read: ncu is not on the PATH" in none
    assert "Counters" not in console.text(view.report(profile()))
