"""Profiles of real runs: counts must be exactly what the plan implies, and parts add up."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

from tests.profiling.made import CEILINGS
from tilewright.errors import TilewrightError
from tilewright.execute import Program
from tilewright.job import Request
from tilewright.model.formats import weights
from tilewright.model.formats.description import read
from tilewright.profiling import session
from tilewright.profiling.session import prepare, record
from tilewright.profiling.wall import PARTS
from tilewright.runtime import cupti, opencl, recorder
from tilewright.runtime.device import CUDA, OPENCL
from tilewright.truth.trials import random_parameters

needs_opencl = pytest.mark.skipif(
    opencl.missing(OPENCL) is not None, reason=str(opencl.missing(OPENCL))
)
IMAGES = 6
pytestmark = pytest.mark.usefixtures("not_optimised")


@pytest.fixture(autouse=True)
def no_calibration(monkeypatch):
    monkeypatch.setattr(session, "ceilings", lambda device, name, precision: (CEILINGS, None))


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """Three convolutions, as in the thesis's network, but small; PoCL compiles each kernel once."""
    folder = tmp_path_factory.mktemp("network")
    conv = {"type": "convolution", "filters": 3, "kernel": 3, "padding": 1}
    layers = [conv, {"type": "relu"}, conv, conv, {"type": "fully_connected", "outputs": 4}]
    net = folder / "three.json"
    net.write_text(json.dumps({"name": "three", "input": {"shape": [3, 6, 6]}, "layers": layers}))
    described = read(net)
    parameters = random_parameters(described, np.random.default_rng(0))
    weights.save(described.with_parameters(parameters), folder / "three.safetensors")
    pixels = np.random.default_rng(0).integers(0, 256, (IMAGES, 3, 6, 6), np.uint8)
    np.savez(folder / "images.npz", images=pixels)
    return folder


def profiled(folder, timeline=None, **options):
    request = Request(
        net=str(folder / "three.safetensors"), data=str(folder / "images.npz"), **options
    )
    recording = record(prepare(request, 1, lambda *told: None), timeline=timeline)
    return recording.profile


def calls(profile, *kinds):
    return {row.name: row.calls for row in profile.named(*kinds)}


def adds_up(profile):
    assert set(profile.wall.parts) == set(PARTS)
    assert all(seconds >= 0 for seconds in profile.wall.parts.values())
    assert sum(profile.wall.parts.values()) == pytest.approx(profile.wall.seconds, rel=1e-9)


# A fully connected layer is two: blocks share its sums.
LAYER_KERNELS = {
    "direct_conv": 3 * IMAGES, "layer_relu": IMAGES, "layer_fc": IMAGES, "layer_fc_sum": IMAGES,
}  # fmt: skip


@needs_opencl
def test_per_layer_copies_in_and_out_of_every_layer(network):
    seen = []
    profile = profiled(
        network, seen.append, device=OPENCL, rung="direct", memory="per-layer", batch=1
    )
    assert calls(profile, "kernel") == LAYER_KERNELS
    # Five inputs; weights and bias of four layers; five outputs.
    assert calls(profile, "copy") == {
        "[memcpy HtoD]": IMAGES * (5 + 8), "[memcpy DtoH]": IMAGES * 5,
    }  # fmt: skip
    api = calls(profile, "api")
    assert api["clEnqueueNDRangeKernel"] == 6 * IMAGES
    assert api["clEnqueueWriteBuffer"] == 13 * IMAGES
    assert api["clEnqueueReadBuffer"] == 5 * IMAGES
    assert calls(profile, "host") == {"host_normalise": IMAGES}
    assert calls(profile, "layer") == dict.fromkeys(
        ("input", "conv1", "relu", "conv2", "conv3", "fc"), IMAGES
    )
    inside = {(row.name, row.layers) for row in profile.of("kernel", "copy")}
    assert ("direct_conv", ("conv2",)) in inside
    assert all(len(layers) == 1 for _, layers in inside)
    moved = sum(row.bytes for row in profile.of("copy") if row.layers == ("conv2",))
    assert moved == IMAGES * 4 * (3 * 36 + 3 * 3 * 9 + 3 + 3 * 36)
    of_conv2 = [row for row in profile.of("copy") if row.layers == ("conv2",)]
    assert {(row.array, row.place.partition(":")[0]) for row in of_conv2} == {
        ("conv2.input", "memory"), ("conv2.output", "memory"),
        ("conv2.weight", "prepare"), ("conv2.bias", "prepare"),
    }  # fmt: skip
    adds_up(profile)
    starts = [event.start for event in seen]
    assert starts == sorted(starts)
    started = {event.correlation for event in seen if event.kind == "api"}
    assert all(e.correlation in started for e in seen if e.kind in ("kernel", "copy"))


@needs_opencl
def test_resident_copies_twice(network):
    profile = profiled(network, device=OPENCL, rung="direct", memory="resident", batch=1)
    assert calls(profile, "kernel") == {**LAYER_KERNELS, "layer_normalise": IMAGES}
    copies = calls(profile, "copy")
    assert (copies["[memcpy HtoD]"], copies["[memcpy DtoH]"]) == (1, 1)
    (into,) = [row for row in profile.of("copy") if row.name == "[memcpy HtoD]"]
    assert (into.bytes, into.layers) == (IMAGES * 3 * 36, ())
    adds_up(profile)


@needs_opencl
@pytest.mark.parametrize(("memory", "copies"), [("managed", 0), ("streamed", 2 * 3)])
def test_managed_copies_nothing_and_streamed_batch_by_batch(network, memory, copies):
    profile = profiled(network, device=OPENCL, rung="direct", memory=memory, batch=2)
    between = [row for row in profile.of("copy") if row.name != "[memcpy DtoD]"]
    assert sum(row.calls for row in between) == copies
    assert calls(profile, "kernel")["direct_conv"] == 3 * 3
    adds_up(profile)


@needs_opencl
@pytest.mark.parametrize("memory", ["resident", "streamed", "per-layer"])
def test_what_the_profiler_itself_calls_is_not_in_the_table(network, memory, monkeypatch):
    """It waits for the device every few batches, and the table of calls must not change by it."""
    found = []
    for settled in (1, 10**9):
        monkeypatch.setattr(session, "SETTLE_BATCHES", settled)
        monkeypatch.setattr(recorder, "PENDING", 7 if settled == 1 else 10**9)
        found.append(profiled(network, device=OPENCL, rung="direct", memory=memory, batch=1))
    often, never = found
    assert calls(often, "api") == calls(never, "api")
    assert calls(often, "kernel", "copy") == calls(never, "kernel", "copy")
    assert calls(often, "profiler")["reading records"] > calls(never, "profiler")["reading records"]
    adds_up(often)


@needs_opencl
def test_ctrl_c_while_records_are_read_neither_loses_nor_doubles_any(
    network, monkeypatch, press_ctrl_c
):
    request = Request(
        net=str(network / "three.safetensors"), data=str(network / "images.npz"),
        device=OPENCL, rung="direct", memory="resident", batch=1,
    )  # fmt: skip
    subject = prepare(request, 1, lambda *told: None)
    monkeypatch.setattr(session, "SETTLE_BATCHES", 3)
    monkeypatch.setattr(session, "SLACK_SECONDS", 0.0)
    seen = []

    def timeline(event):
        seen.append(event)
        if len(seen) == 5:
            press_ctrl_c()

    recording = record(subject, timeline=timeline)
    assert isinstance(recording.error, KeyboardInterrupt)
    profile = recording.profile
    assert profile.stopped == "interrupted after 3 of 6 images"
    # Every kernel of three images, once, in the tables as in the timeline.
    assert calls(profile, "kernel") == {
        "direct_conv": 9, "layer_relu": 3, "layer_fc": 3, "layer_fc_sum": 3, "layer_normalise": 3,
    }  # fmt: skip
    for kind in ("kernel", "copy", "api", "layer"):
        assert sum(calls(profile, kind).values()) == sum(event.kind == kind for event in seen)
    adds_up(profile)


def test_ctrl_c_when_all_is_recorded_leaves_it_all(network, press_ctrl_c):
    def timeline(event):
        press_ctrl_c()

    request = Request(net=str(network / "three.safetensors"), data=str(network / "images.npz"))
    recording = record(prepare(request, 1, lambda *told: None), timeline=timeline)
    assert isinstance(recording.error, KeyboardInterrupt)
    assert recording.profile.stopped is None
    assert recording.profile.images == 6
    assert calls(recording.profile, "layer")
    adds_up(recording.profile)


@needs_opencl
def test_kernels_know_their_work(network):
    profile = profiled(network, device=OPENCL, rung="padded", memory="resident", batch=4)
    rows = {(row.name, row.layers): row for row in profile.of("kernel")}
    conv = rows["padded_conv", ("conv2",)]
    assert conv.flops == IMAGES * 2 * 3 * 36 * 27
    assert rows["padded_pad", ("conv2",)].flops == 0
    assert rows["padded_pad", ("conv2",)].least_bytes == IMAGES * 4 * 3 * (36 + 64)
    assert {grid[2] for grid, _ in conv.shapes} == {4, 2}


def as_if_on_cuda(network, memory):
    """A run that believes to be on CUDA, and has its pages of shared memory."""
    request = Request(
        net=str(network / "three.safetensors"), data=str(network / "images.npz"),
        device=OPENCL, rung="direct", memory=memory, batch=2,
    )  # fmt: skip
    made = prepare(request, 1, lambda *told: None)
    made.ready.program.runtime.shared_pages = lambda: "pages"
    on_cuda = replace(made.ready, plan=replace(made.ready.plan, device=CUDA))
    return replace(made, ready=on_cuda)


@needs_opencl
@pytest.mark.parametrize("memory", ["managed", "resident"])
def test_cupti_gets_pages_to_touch_where_memory_is_shared(network, memory, monkeypatch):
    given = []

    def refuse(trace, device, pages):
        given.append(pages and pages())
        raise cupti.Refused("only asking")

    monkeypatch.setattr(cupti, "CuptiCollector", refuse)
    record(as_if_on_cuda(network, memory))
    assert given == ["pages" if memory == "managed" else None]


@needs_opencl
def test_without_cupti_the_runtimes_own_times_take_over_and_it_is_said(network, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupti.cupti", None)
    profile = record(as_if_on_cuda(network, "managed")).profile
    assert profile.notices == (
        "no CUPTI, CUDA events instead: cupti-python is not installed: "
        "pip install 'tilewright[cuda]'",
        "page faults of a device and pages that move are counted by CUPTI alone, on CUDA: "
        "OpenCL does not tell of them, and PoCL, which is the CPU, has none",
    )
    assert calls(profile, "kernel")["direct_conv"] == 3 * 3


def test_the_cpu_has_layer_timers(network):
    profile = profiled(network, rung="im2col", batch=4)
    assert profile.source == "the host's clock around each layer's computation"
    assert calls(profile, "kernel")["im2col_conv"] == 3 * 2
    assert calls(profile, "layer")["conv2"] == 2
    assert profile.of("copy", "api", "unified") == []
    adds_up(profile)
    assert len(profile.timed) == 1


def test_layers_that_were_fused_are_all_named(network):
    profile = profiled(network, rung="fused", batch=3)
    rows = {row.layers for row in profile.of("kernel")}
    assert ("conv1", "relu") in rows
    (whole,) = profile.of("layer")
    assert whole.layers == ("input", "conv1", "relu", "conv2", "conv3", "fc")


def test_ctrl_c_leaves_a_partial_profile(network):
    request = Request(
        net=str(network / "three.safetensors"), data=str(network / "images.npz"),
        rung="im2col", batch=2,
    )  # fmt: skip

    def interrupt(doing, done, of):
        if doing.startswith("recording") and done == 4:
            raise KeyboardInterrupt

    recording = record(prepare(request, 1, lambda *told: None), interrupt)
    assert isinstance(recording.error, KeyboardInterrupt)
    assert recording.profile.stopped == "interrupted after 4 of 6 images"
    assert recording.profile.images == 4
    assert calls(recording.profile, "kernel")["im2col_conv"] == 3 * 2
    adds_up(recording.profile)


@needs_opencl
def test_a_device_that_fails_leaves_a_partial_profile(network, monkeypatch):
    request = Request(
        net=str(network / "three.safetensors"), data=str(network / "images.npz"),
        device=OPENCL, rung="direct", memory="resident", batch=1,
    )  # fmt: skip
    subject = prepare(request, 1, lambda *told: None)
    runtime = subject.ready.program.runtime
    right, launched = runtime.enqueue, []

    def faulty(kernel, *given):
        launched.append(kernel)
        if len(launched) == 23:
            raise RuntimeError("CL_OUT_OF_RESOURCES:\n an illegal address")
        right(kernel, *given)

    monkeypatch.setattr(runtime, "enqueue", faulty)
    recording = record(subject)
    assert isinstance(recording.error, RuntimeError)
    profile = recording.profile
    assert profile.stopped == (
        "RuntimeError: CL_OUT_OF_RESOURCES: an illegal address after 3 of 6 images"
    )
    assert sum(row.calls for row in profile.of("kernel")) == 22
    adds_up(profile)


def test_an_output_that_is_not_finite_is_refused(network, monkeypatch):
    right = Program.__call__

    def wrong(self, images, *given):
        outputs = right(self, images, *given)
        outputs[-1] = np.nan
        return outputs

    monkeypatch.setattr(Program, "__call__", wrong)
    with pytest.raises(TilewrightError, match="not finite"):
        profiled(network, rung="im2col")


def test_without_recording_nothing_is_detailed(network):
    """A run that is only timed makes no events at all."""
    request = Request(net=str(network / "three.safetensors"), data=str(network / "images.npz"))
    subject = prepare(request, 2, lambda *told: None)
    assert subject.ready.program.runtime.trace is None
    assert len(subject.timed.seconds) == 2
