"""Rungs in a worker: the same answers as in this process, and the same errors."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from tests.judge.changed import changed
from tilewright.errors import TilewrightError
from tilewright.execute import Program
from tilewright.judge import WorkerStopped, connection, isolated, office, protocol, sandbox
from tilewright.judge.allowance import Allowance
from tilewright.judge.connection import Connection
from tilewright.judge.worker import Worker
from tilewright.model.layers import Convolution, Flatten, FullyConnected, Pixels, ReLU
from tilewright.model.network import Network
from tilewright.plan import uniform
from tilewright.rungs import choose
from tilewright.rungs.rung import Rung
from tilewright.runtime import GpuRuntime
from tilewright.runtime.device import OPENCL
from tilewright.runtime.opencl import missing
from tilewright.trace import Trace
from tilewright.truth.trials import random_parameters
from tilewright.truth.verify import verify

quickly = pytest.mark.usefixtures("quick_workers", "not_optimised")
pytestmark = [
    pytest.mark.skipif(missing(OPENCL) is not None, reason="needs PoCL"),
    pytest.mark.skipif(bool(sandbox.protection().missing), reason="needs Landlock and seccomp"),
]

LAYERS = (Convolution(3, (3, 3), padding=(1, 1)), ReLU(), Flatten(), FullyConnected(4))
BARE = Network("small", Pixels((2, 7, 6)), LAYERS)
NETWORK = BARE.with_parameters(random_parameters(BARE, np.random.default_rng(1)))
IMAGES = np.random.default_rng(2).integers(0, 256, (5, 2, 7, 6), np.uint8)


def program(rung: Rung, memory: str = "resident") -> Program:
    return Program(NETWORK, uniform(NETWORK, rung, OPENCL, 2, memory), {rung.name: rung})


@quickly
@pytest.mark.parametrize("name", ["constant", "unroll-gemm"])
def test_a_worker_computes_what_the_runtime_here_does(name: str):
    here = choose(OPENCL, name)
    there = isolated(here)
    for memory in ("resident", "streamed", "per-layer"):
        expected = program(here, memory)(IMAGES)
        np.testing.assert_array_equal(program(there, memory)(IMAGES), expected)
    trace = Trace()
    program(there)(IMAGES, trace)
    kernels = trace.of("kernel")
    assert {event.layers for event in kernels} >= {("conv",), ("fc",)}
    assert all(event.seconds > 0 and event.grid for event in kernels)
    assert trace.of("copy")


@quickly
def test_the_proof_works_in_isolation(monkeypatch: pytest.MonkeyPatch):
    from tilewright.truth import verify as module

    whole = module.trials
    monkeypatch.setattr(module, "trials", lambda *given: islice(whole(*given), 4))
    assert verify(isolated(choose(OPENCL, "direct")), OPENCL, seed=1).passed
    wrong = changed("mine", "bias[filter]", "0 * bias[filter]")
    verdict = verify(isolated(wrong), OPENCL, seed=1)
    assert verdict.fault is not None and "must be" in verdict.fault.problem


@quickly
def test_after_a_crash_the_next_use_starts_anew():
    crashing = changed("mine", "bias[filter]", "bias[1L << 44]")
    rung = isolated(crashing)
    broken = program(rung)
    with pytest.raises(WorkerStopped, match=r"while running direct_conv on conv: .* SIGSEGV"):
        broken(IMAGES)
    with pytest.raises(WorkerStopped, match="SIGSEGV"):  # its buffers are gone
        broken(IMAGES)
    assert isinstance(rung.open_runtime(OPENCL, "resident"), GpuRuntime)


def test_a_worker_whose_driver_gave_up_is_no_more_use(monkeypatch: pytest.MonkeyPatch):
    rung = isolated(choose(OPENCL, "direct"))
    runtime = rung.open_runtime(OPENCL, "resident")
    buffer = runtime.upload(np.zeros(3, np.uint8))
    lost = protocol.Failed(7, "Lost", "CUDARuntimeError: cudaErrorIllegalAddress: an illegal one")
    monkeypatch.setattr(office, "ticket", lambda: 7)
    monkeypatch.setattr(Connection, "_wait", lambda *given: lost)
    with pytest.raises(WorkerStopped, match=r"it touched memory that is not its own \(CUDARun"):
        runtime.download(buffer)
    monkeypatch.undo()
    fresh = rung.open_runtime(OPENCL, "resident")
    assert fresh.download(fresh.upload(np.ones(3, np.uint8))).tolist() == [1, 1, 1]


def test_what_no_runtime_foresees_is_told_to_the_judge():
    class Broken:
        trace = None

        def synchronise(self):
            raise RuntimeError("cudaErrorLaunchFailure")

    answer = Worker(Broken(), np.zeros(1, np.uint8)).serve(protocol.Wait(3))
    assert answer == protocol.Failed(3, "Lost", "RuntimeError: cudaErrorLaunchFailure")


@quickly
def test_more_than_fits_the_window_goes_through_it_in_parts(monkeypatch: pytest.MonkeyPatch):
    window = 2**20
    for module in (connection, office):
        monkeypatch.setattr(module, "WINDOW", window)
    runtime = isolated(choose(OPENCL, "direct")).open_runtime(OPENCL, "resident")
    values = np.random.default_rng(3).integers(0, 256, window + 5000, np.uint8)
    buffer = runtime.upload(values)
    other = runtime.upload(values[::-1])
    np.testing.assert_array_equal(runtime.download(buffer), values)
    np.testing.assert_array_equal(runtime.download(other[3:9]), values[::-1][3:9])
    buffer[10:20] = other[:10]
    assert (runtime.download(buffer)[10:20] == values[::-1][:10]).all()


def test_what_cannot_be_isolated_needs_trust(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sandbox, "protection", lambda: sandbox.Protection(0, False))
    with pytest.raises(TilewrightError, match=r"files can be read .* network.* --trust"):
        isolated(choose(OPENCL, "direct")).open_runtime(OPENCL, "resident")
    sandbox.check(trust=True)


def test_no_variable_of_the_user_reaches_a_worker(monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.setenv("SECRET_TOKEN", "mine")
    monkeypatch.setenv("LD_PRELOAD", "")
    given = sandbox.environment(tmp_path, None, native=True)
    assert not {"SECRET_TOKEN", "LD_PRELOAD"} & set(given)


def test_managed_memory_is_refused_and_limits_hold():
    rung = isolated(choose(OPENCL, "direct"), Allowance(memory_bytes=2**30))
    assert "managed" not in rung.memories
    with pytest.raises(TilewrightError, match="managed"):
        rung.open_runtime(OPENCL, "managed")
    runtime = rung.open_runtime(OPENCL, "resident")
    buffer = runtime.allocate((2**31,), np.uint8)
    with pytest.raises(TilewrightError, match="memory"):
        runtime.download(buffer[:1])
