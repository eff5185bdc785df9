"""What ncu prints, and what is said where it cannot count. Text as ncu 2025 writes it."""

from __future__ import annotations

import subprocess

import pytest

from tests.profiling.made import profile
from tilewright.job import Request
from tilewright.profiling import counters, counting, saved
from tilewright.profiling.counters import (
    COMPUTE,
    DRAM,
    DURATION,
    L2,
    OCCUPANCY,
    SHARED,
    THREADS,
    parse,
)
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


CONV = "direct_conv(const float *, float *)"
TEXT = "\n".join([
    "==PROF== Connected to process 4711 (/usr/bin/python3.12)",
    '==PROF== Profiling "direct_conv" - 0: 0%....50%....100% - 9 passes',
    HEAD,
    *launch(0, CONV, "3,000", "80.00", "90.00", "5.00"),
    *launch(1, CONV, "1,000", "40.00", "50.00", "5.00"),
    *launch(2, "layer_relu(float *)", "500", "70.00", "10.00", "85.50"),
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
    found, why = counting.counted(Request(device=CUDA), CUDA)
    assert found == () and words in why
    assert given[0][:2] == ["/bin/ncu", "--csv"] and ",".join(counters.METRICS) in given[0]


def test_without_ncu_or_on_another_device_it_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(counting.shutil, "which", lambda name: None)
    monkeypatch.setattr(counting, "USUAL", tmp_path / "none")
    assert "is not on the PATH" in counting.counted(Request(device=CUDA), CUDA)[1]
    assert "opencl has no counters" in counting.counted(Request(device=OPENCL), OPENCL)[1]


def test_they_are_shown_and_kept():
    some = profile(counters=parse(TEXT))
    text = console.text(view.report(some))
    lines = [" ".join(each.split()) for each in text.splitlines()]
    assert "direct_conv 2 70.0 % 75.0 % 80.0 % 5.0 % 20.0 % 10.0 % limited by compute" in lines
    assert saved.profile_of(saved.record(some)) == some
    none = console.text(view.report(profile(uncounted="ncu is not on the PATH")))
    assert "Counters: not read: ncu is not on the PATH" in none
    assert "Counters" not in console.text(view.report(profile()))
