"""The whole ladder under a driver that forgives nothing, on machines of several kinds; and proof
that the driver, `strict`, notices what it is there for."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace

import numpy as np
import pytest

from tests.profiling.made import CEILINGS
from tests.runtime import strict
from tests.runtime.strict import AMD, GENEROUS, NVIDIA, SMALL, Violation
from tilewright.cli import main
from tilewright.errors import TilewrightError
from tilewright.execute import program_of
from tilewright.job import Request
from tilewright.model.formats import weights
from tilewright.model.layers import (
    Convolution,
    Flatten,
    FullyConnected,
    MaxPool,
    Pixels,
    ReLU,
    Softmax,
)
from tilewright.model.network import Network
from tilewright.profiling import session
from tilewright.rungs import find, rungs
from tilewright.runtime import DeviceFault, opencl, opencl_programs
from tilewright.runtime.device import OPENCL
from tilewright.runtime.dialect import Source
from tilewright.runtime.opencl_runtime import OpenClRuntime
from tilewright.trace import Trace
from tilewright.truth import reference
from tilewright.truth.attempt import compare
from tilewright.truth.trials import random_parameters

HERE = not opencl.unusable() and any(map(opencl.is_pocl, opencl.devices()))
pytestmark = pytest.mark.skipif(
    not HERE or opencl.check_pocl() is not None, reason="no PoCL that works"
)
RUNGS = [rung.name for rung in rungs(OPENCL)]
MEMORIES = ("resident", "streamed", "per-layer")
# Images and results of 256 bytes: batches of three start at multiples of 512 bytes, and elsewhere.
NETWORK = Network(
    "small", Pixels((4, 8, 8)),
    (Convolution(5, 3, padding=1), ReLU(), MaxPool(2), Flatten(), FullyConnected(64), Softmax()),
)  # fmt: skip
IMAGES, BATCH = 11, 3  # more batches than are in flight at a time, and a last one that is not full


def check(rung, memory, *traces):
    """Right, with each of the traces in turn; first without."""
    generator = np.random.default_rng(1)
    ready = NETWORK.with_parameters(random_parameters(NETWORK, generator))
    pixels = generator.integers(0, 256, (IMAGES, *NETWORK.input.shape), np.uint8)
    program = program_of(ready, find(rung), OPENCL, BATCH, memory)
    truth = reference.chain(ready.stages, ready.parameters, pixels, find(rung).precision)[-1]
    for trace in (None, *traces):
        _, problem = compare(program(pixels, trace), truth)
        assert problem is None, problem


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("rung", RUNGS)
def test_the_ladder(rung, memory, monkeypatch):
    strict.install(monkeypatch, NVIDIA)
    trace = Trace(detailed=True)  # as profile does
    check(rung, memory, None, trace)
    launches = [event for event in trace.of("api") if event.name == "clEnqueueNDRangeKernel"]
    assert len(launches) == len(trace.of("kernel")) > 0


@pytest.fixture
def saved(tmp_path):
    """The network and images as files, and the words that name them on a command line."""
    generator = np.random.default_rng(1)
    ready = NETWORK.with_parameters(random_parameters(NETWORK, generator))
    weights.save(ready, tmp_path / "small.safetensors")
    pixels = generator.integers(0, 256, (IMAGES, *NETWORK.input.shape), np.uint8)
    np.savez(tmp_path / "images.npz", images=pixels)
    return {"net": str(tmp_path / "small.safetensors"), "data": str(tmp_path / "images.npz")}


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_profile(memory, saved, monkeypatch):
    strict.install(monkeypatch, NVIDIA)
    monkeypatch.setattr(session, "ceilings", lambda device, name, precision: (CEILINGS, None))
    request = Request(**saved, batch=BATCH, device=OPENCL, rung="direct", memory=memory)
    recording = session.record(session.prepare(request, 1, lambda *told: None))
    assert recording.error is None
    assert recording.profile.images == IMAGES


def refusing(module, monkeypatch, after):
    """A driver that refuses a launch, once so many were queued."""
    launch, launches = module.enqueue_nd_range_kernel, itertools.count()

    def refuse(*given):
        if next(launches) >= after:
            raise module.LogicError("clEnqueueNDRangeKernel failed: INVALID_KERNEL_ARGS")
        return launch(*given)

    monkeypatch.setattr(module, "enqueue_nd_range_kernel", refuse)


@pytest.mark.parametrize("verb", ["run", "profile"])
@pytest.mark.parametrize("memory", MEMORIES)
def test_what_a_driver_refuses_is_one_line_for_the_user(verb, memory, saved, monkeypatch, capsys):
    module = strict.install(monkeypatch, NVIDIA)
    refusing(module, monkeypatch, after=0)
    words = [verb, "--net", saved["net"], "--data", saved["data"], "--device", "opencl"]
    assert main([*words, "--rung", "direct", "--memory", memory]) == 2
    printed = capsys.readouterr().err
    assert "internal error" not in printed
    first = "direct_conv" if memory == "per-layer" else "layer_normalise"
    said = f"), kernel {first}: clEnqueueNDRangeKernel failed: INVALID_KERNEL_ARGS\n"
    assert printed.splitlines(keepends=True)[-1].endswith(said)
    assert "tilewright: opencl (" in printed


def test_a_fault_leaves_what_was_recorded_before_it(saved, monkeypatch):
    module = strict.install(monkeypatch, NVIDIA)
    monkeypatch.setattr(session, "ceilings", lambda device, name, precision: (CEILINGS, None))
    request = Request(**saved, batch=BATCH, device=OPENCL, rung="direct")
    subject = session.prepare(request, 1, lambda *told: None)
    refusing(module, monkeypatch, after=len(NETWORK.layers) * 2)
    recording = session.record(subject)
    assert isinstance(recording.error, DeviceFault)
    assert recording.profile.images == 2 * BATCH
    assert "INVALID_KERNEL_ARGS after 6 of 11 images" in recording.profile.stopped


@pytest.mark.parametrize("machine", [AMD, SMALL, GENEROUS], ids=lambda machine: machine.name)
@pytest.mark.parametrize("rung", RUNGS)
def test_machines_of_other_kinds(rung, machine, monkeypatch):
    strict.install(monkeypatch, machine)
    check(rung, "resident")


@pytest.fixture(params=strict.MACHINES, ids=lambda machine: machine.name)
def machine(request):
    return request.param


def test_managed_is_refused_where_nothing_is_shared(machine, monkeypatch):
    strict.install(monkeypatch, machine)
    with pytest.raises(TilewrightError, match=r"shares no memory with the host .*use resident"):
        OpenClRuntime(OPENCL, managed=True)


def test_a_device_is_taken_at_its_word(machine, monkeypatch):
    strict.install(monkeypatch, machine)
    runtime = OpenClRuntime(OPENCL)
    assert runtime.alignment == machine.alignment
    assert runtime.limits.threads == min(machine.threads, 1024)
    assert runtime.limits.shared_bytes == min(machine.shared_bytes, 48 * 1024)
    assert runtime.limits.block == tuple(map(min, machine.block, (1024, 1024, 64)))


@pytest.mark.parametrize("first", [0, 1, 32, 128, 1024])
def test_only_what_may_have_changed_is_copied_back(first, machine, monkeypatch):
    strict.install(monkeypatch, machine)
    runtime = OpenClRuntime(OPENCL)
    x, out = runtime.upload(np.arange(2000, dtype=np.float32)), runtime.allocate((2000,))
    kernel = runtime.compile(DOUBLE)
    moved, copy = [], runtime.copy
    runtime.copy = lambda target, source: (moved.append(target), copy(target, source))
    runtime.enqueue(kernel, (5, 1, 1), [x[first : first + 5], out[first : first + 5]], ())
    found = runtime.download(out[first : first + 5])
    assert found.tolist() == [2.0 * value for value in range(first, first + 5)]
    aligned = 4 * first % machine.alignment == 0
    assert [each.memory for each in moved[2:]] == ([] if aligned else [out.memory])


# The checker checked: each of these is what it is there to find.

DOUBLE = Source(
    "double_values",
    "TW_ENTRY TW_NAME(TW_GLOBAL const float *x, TW_GLOBAL float *out) {"
    " out[TW_BLOCK_X] = 2 * x[TW_BLOCK_X]; }",
    (1, 1, 1),
    (),
)


@pytest.fixture
def module(monkeypatch):
    return strict.install(monkeypatch, NVIDIA)


@pytest.fixture
def runtime(module):
    return OpenClRuntime(OPENCL)


def values(count, value=1.0):
    return np.full(count, value, np.float32)


def test_an_argument_that_is_released_before_the_launch(runtime, module):
    """What real drivers call INVALID_KERNEL_ARGS."""
    x, out = runtime.upload(values(1000)), runtime.allocate((1000,))
    kernel = runtime.compile(DOUBLE).handle.kernel
    kernel.set_args(*map(runtime._argument, (x[128:], out[128:])))
    with pytest.raises(Violation, match="an argument was released before the launch"):
        module.enqueue_nd_range_kernel(runtime.kernels, kernel, (1, 1, 1), (1, 1, 1))
    kept = [runtime._argument(each) for each in (x[128:], out[128:])]
    kernel.set_args(*kept)
    module.enqueue_nd_range_kernel(runtime.kernels, kernel, (1, 1, 1), (1, 1, 1))


def test_regions(runtime):
    runtime.alignment = 128  # PoCL's
    x, out = runtime.upload(values(1000)), runtime.allocate((1000,))
    with pytest.raises(Violation, match="a region at 128, no multiple of 512"):
        runtime.enqueue(runtime.compile(DOUBLE), (1, 1, 1), [x[32:], out], ())
    with pytest.raises(Violation, match="a region of a region"):
        x.memory.get_sub_region(512, 1024).get_sub_region(512, 4)
    with pytest.raises(Violation, match="a region of 4 bytes at 4096"):
        x.memory.get_sub_region(4096, 4)


def test_a_dead_or_changed_array_of_the_host(runtime):
    buffer, kept = runtime.allocate((100,)), values(100)
    runtime.send(buffer, values(100), None)  # of which nothing is left
    with pytest.raises(Violation, match="gone before its copy was done"):
        runtime.synchronise()
    mark = runtime.send(buffer, kept, None)
    kept[3] = 7
    with pytest.raises(Violation, match="changed before its copy was done"):
        runtime.wait(mark)
    runtime.wait(runtime.send(buffer, kept, None))


def test_what_is_fetched_is_there_when_it_was_waited_for(runtime):
    buffer, back = runtime.upload(values(100)), values(100, 0)
    mark = runtime.fetch(back, buffer, runtime.mark())
    assert np.isnan(back).all()
    runtime.wait(mark)
    assert (back == 1).all()
    runtime.fetch(values(100), buffer, runtime.mark())
    with pytest.raises(Violation, match="gone before its copy was done"):
        runtime.synchronise()


def test_lanes_that_do_not_wait_for_each_other(runtime):
    kernel = runtime.compile(DOUBLE)
    x, out, back = runtime.upload(values(8)), runtime.allocate((8,)), values(8)
    runtime.enqueue(kernel, (8, 1, 1), [x, out], ())
    with pytest.raises(Violation, match=r"a read and the kernel double_values touch the same"):
        runtime.fetch(back, out, None)
    runtime.synchronise()
    kept = values(8)
    runtime.send(x, kept, None)
    with pytest.raises(Violation, match=r"the kernel double_values and a write touch the same"):
        runtime.enqueue(kernel, (8, 1, 1), [x, out], ())
    runtime.synchronise()
    runtime.enqueue(kernel, (8, 1, 1), [x, out], ())
    runtime.send(runtime.allocate((8,)), kept, None)  # elsewhere: nothing to wait for
    runtime.synchronise()


def test_waiting_for_what_was_never_flushed(runtime, module):
    back, buffer = values(8), runtime.upload(values(8))
    mark = module.enqueue_marker(runtime.kernels)
    with pytest.raises(Violation, match="which was never flushed"):
        runtime.fetch(back, buffer, mark)


def test_a_work_group_beyond_the_device(runtime):
    runtime.limits = replace(runtime.limits, threads=4096, block=(4096, 4096, 4096))
    module = runtime.cl
    for block, words in (((1025, 1, 1), "1025 threads"), ((1, 1, 65), r"\(1, 1, 65\)")):
        source = replace(DOUBLE, block=block)
        kernel = module.Kernel(opencl_programs.program(0, source.complete), source.name)
        kernel.set_args(runtime.allocate((1,)).memory, runtime.allocate((1,)).memory)
        with pytest.raises(Violation, match=f"a work-group of {words}"):
            module.enqueue_nd_range_kernel(runtime.kernels, kernel, block, block)


def test_what_a_launch_must_have(runtime, module):
    buffer = runtime.upload(values(8)).memory
    kernel = runtime.compile(replace(DOUBLE, block=(2, 1, 1))).handle.kernel
    launch = module.enqueue_nd_range_kernel
    with pytest.raises(Violation, match="launched without arguments"):
        launch(runtime.kernels, kernel, (2, 1, 1), (2, 1, 1))
    with pytest.raises(Violation, match="1 arguments of 2"):
        kernel.set_args(buffer)
    kernel.set_args(buffer, buffer)
    with pytest.raises(Violation, match=r"\(3, 1, 1\)"):
        launch(runtime.kernels, kernel, (3, 1, 1), (2, 1, 1))
    with pytest.raises(Violation, match="compiled for"):
        launch(runtime.kernels, kernel, (4, 1, 1), (4, 1, 1))
    kernel.set_args(buffer, np.int32(1))
    with pytest.raises(Violation, match="for a buffer"):
        launch(runtime.kernels, kernel, (2, 1, 1), (2, 1, 1))
    found = []

    def elsewhere():
        with pytest.raises(Violation, match="from two threads"):
            kernel.set_args(buffer, buffer)
        found.append(True)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found
    kernel.set_args(buffer, buffer)
    buffer.release()
    with pytest.raises(Violation, match="a buffer that was released"):
        launch(runtime.kernels, kernel, (2, 1, 1), (2, 1, 1))


def test_memory_beyond_the_device(runtime, module):
    text = (
        "TW_ENTRY TW_NAME(TW_GLOBAL float *out TW_CONSTANT_ARGUMENT) {"
        " TW_SHARED float s[13000]; s[TW_BLOCK_X] = tw_constant[TW_BLOCK_X]; TW_BARRIER();"
        " out[TW_BLOCK_X] = s[TW_BLOCK_X]; }"
    )
    source = Source("large", text, (1, 1, 1), (), constant_floats=4)
    kernel = module.Kernel(opencl_programs.program(0, source.complete), source.name)
    out, constant = runtime.allocate((1,)).memory, runtime.allocate((20_000,)).memory
    kernel.set_args(out, constant)
    with pytest.raises(Violation, match="52000 shared bytes"):
        module.enqueue_nd_range_kernel(runtime.kernels, kernel, (1, 1, 1), (1, 1, 1))
    kernel.shared_bytes = 0
    with pytest.raises(Violation, match="constant memory of 80000 bytes"):
        module.enqueue_nd_range_kernel(runtime.kernels, kernel, (1, 1, 1), (1, 1, 1))
    pinned = module.Buffer(runtime.context, module.mem_flags.READ_WRITE, 4)
    access = module.map_flags.READ
    module.enqueue_map_buffer(runtime.kernels, pinned, access, 0, (4,), np.dtype(np.uint8))
    with pytest.raises(Violation, match="that the host has mapped"):
        pinned.get_sub_region(0, 4)


def test_what_not_every_driver_has(module):
    with pytest.raises(Violation, match="-cl-fast-nonsense, which not every compiler knows"):
        module.Program(None, "").build("-cl-std=CL1.2 -cl-fast-nonsense")
    with pytest.raises(Violation, match="shared virtual memory"):
        module.fsvm_empty(None, (1,), "f4")
    with pytest.raises(Violation, match="enqueue_fill_buffer is not checked"):
        module.enqueue_fill_buffer(None)
