"""The start of a program, recorded in a process of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.profiling.made import profile
from tests.rungs.own.test_rung import needs_opencl
from tilewright.errors import TilewrightError
from tilewright.job import Request, run
from tilewright.model.load import load
from tilewright.profiling import start
from tilewright.profiling.tally import by_name
from tilewright.results.run import record
from tilewright.runtime import cupti
from tilewright.runtime.device import CUDA, OPENCL
from tilewright.views import console
from tilewright.views import profile as view

DESCRIBED = {
    "name": "start",
    "input": {"shape": [1, 6, 6]},
    "layers": [{"type": "convolution", "filters": 2, "kernel": 3}],
}
WEIGHTS = {"conv.weight": np.ones((2, 1, 3, 3)), "conv.bias": np.zeros(2)}
PIXELS = np.zeros((4, 1, 6, 6), np.uint8)


def request(**more):
    return Request(net=load(DESCRIBED, WEIGHTS), data=PIXELS, batch=2, **more)


@needs_opencl
def test_a_new_process_says_what_it_called():
    begun = start.recorded(request(device=OPENCL, rung="direct"))
    names = [name for name, _ in begun.phases]
    assert names[:2] == [start.BEFORE, "open device"] and names[-2:] == ["warm up", "free memory"]
    assert names.index("send weights") == names.index("build kernels") + 1
    calls = {row.name: row.calls for row in by_name(begun.rows) if row.kind == "api"}
    once = ("clGetPlatformIDs", "clCreateContext")
    assert [calls[name] for name in once] == [1, 1]
    assert calls["clBuildProgram"] >= 2  # how pixels enter, and the convolution
    assert {row.phase for row in begun.rows if row.name == "clBuildProgram"} == {"build kernels"}
    assert calls["clCreateBuffer"] and calls["clEnqueueNDRangeKernel"] and calls["clFinish"]
    kernels = {row.name: row.calls for row in begun.rows if row.kind == "kernel"}
    assert kernels["direct_conv"] == 2  # four images, two at a time: the warm-up has no more
    assert not begun.notices


def test_what_was_noticed_at_the_start_is_told_with_the_rest():
    begun = start.Start((("open device", 0.1),), profile().rows[:1], ("records were lost",))
    made = start.with_start(profile(notices=("it is hot",)), begun)
    assert made.notices == ("it is hot", "records were lost")
    assert (made.start, made.start_rows) == (begun.phases, begun.rows)


@needs_opencl
def test_what_is_created_loaded_and_sent_is_told_by_the_phase_it_was_in():
    begun = start.record(request(device=OPENCL, rung="direct"))
    rows = {(row.phase, row.name): row for row in begun.rows}
    assert rows["build kernels", "clCreateBuffer"].calls == 2  # of the weights
    assert rows["create outputs", "clCreateBuffer"].calls
    sent = {row.array: row.bytes for row in begun.rows if row.phase == "send weights"}
    assert sent == {"conv.weight": 4 * 2 * 3 * 3, "conv.bias": 4 * 2}
    shown = replace(profile(), start=begun.phases, start_rows=begun.rows)
    text = console.text(view.report(shown, from_start=True))
    lines = [" ".join(each.split()[:6]) for each in text.splitlines()]
    assert "send weights copyin conv.weight 1 72" in lines
    assert any(each.startswith("create outputs create clCreateBuffer") for each in lines)
    assert text.index("forward  ") < text.index("free memory")


@needs_opencl
def test_a_run_sends_weights_in_a_phase_of_its_own_and_copies_in_two_directions():
    done = run(request(device=OPENCL, rung="direct"))
    phases = [event.name for event in done.trace.of("phase")]
    assert phases.index("send weights") == phases.index("build kernels") + 1
    assert {each.direction: (each.calls, each.bytes) for each in record(done).copies} == {
        "host to device": (1, PIXELS.nbytes), "device to host": (1, 4 * 4 * 2 * 4 * 4),
    }  # fmt: skip
    assert done.trace.of("copy")[0].bytes == PIXELS.nbytes  # weights are no part of the forward


def test_a_cpu_has_phases_and_no_calls():
    begun = start.record(request(rung="im2col"))
    assert not [row for row in begun.rows if row.kind == "api"]
    assert "send weights" not in dict(begun.phases)


def test_where_cupti_refuses_the_start_says_so(monkeypatch):
    def refuse(*given):
        raise cupti.Refused("only administrators profile")

    monkeypatch.setattr(cupti, "CuptiCollector", refuse)
    monkeypatch.setattr(start, "make_ready", lambda request, trace: None)
    begun = start.record(request(device=CUDA))
    assert begun.notices == (
        "no CUPTI: calls of the start are not seen: only administrators profile",
    )


def test_cupti_listens_from_before_the_device_is_opened(monkeypatch):
    happened = []

    class Collector:
        notices = ("a notice",)

        def __init__(self, trace, device):
            happened.append(f"collecting from device {device}")

        def close(self):
            happened.append("closed")

    monkeypatch.setattr(cupti, "CuptiCollector", Collector)
    monkeypatch.setattr(start, "make_ready", lambda *given: happened.append("ready"))
    begun = start.record(request(device=CUDA))
    assert happened == ["collecting from device 0", "ready", "closed"]
    assert begun.notices == ("a notice",)


def test_what_cannot_start_is_one_line():
    with pytest.raises(TilewrightError, match="start could not be recorded: unknown rung on cpu"):
        start.recorded(request(rung="x"))
