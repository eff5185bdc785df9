"""Memory plans: what is timed is the same, wherever it is timed."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tilewright import contest, job, memory
from tilewright.execute import program_of
from tilewright.model.formats import weights
from tilewright.model.layers import Flatten, FullyConnected, Pixels
from tilewright.model.network import Network
from tilewright.rungs import find
from tilewright.runtime import opencl
from tilewright.runtime.device import CPU, CUDA, OPENCL
from tilewright.trace import Trace
from tilewright.truth.trials import random_parameters

pytestmark = [
    pytest.mark.skipif(opencl.missing(OPENCL) is not None, reason=str(opencl.missing(OPENCL))),
    pytest.mark.usefixtures("not_optimised"),
]
DIRECT = find("direct")


@pytest.fixture
def network():
    plain = Network("plain", Pixels((1, 4, 4)), (Flatten(), FullyConnected(3)))
    return plain.with_parameters(random_parameters(plain, np.random.default_rng(0)))


@pytest.fixture
def pixels():
    return np.random.default_rng(0).integers(0, 256, (7, 1, 4, 4), np.uint8)


@pytest.fixture
def straight(monkeypatch):
    """For each slot that is made, whether images go to the device without being copied first."""
    seen, made = [], memory._Slot.__init__

    def noted(slot, runtime, given, dtype, kept, straight):
        seen.append(straight)
        made(slot, runtime, given, dtype, kept, straight)

    monkeypatch.setattr(memory._Slot, "__init__", noted)
    return seen


@pytest.mark.parametrize("plan", ["per-layer", "managed"])
def test_images_stay_where_they_are_for_other_plans(network, pixels, plan):
    program = program_of(network, DIRECT, OPENCL, 2, plan)
    assert not memory.pins(program)
    assert memory.pin(program, pixels) is pixels


@pytest.mark.parametrize("rung", ["im2col", "torch"])
def test_a_cpu_has_images_as_they_are(network, pixels, rung):
    if reason := find(rung).missing(CPU):
        pytest.skip(reason)
    program = program_of(network, find(rung), CPU, 2)
    assert memory.pin(program, pixels) is pixels


def test_a_librarys_images_are_pinned_too(network, pixels, monkeypatch):
    """Rungs are compared by what they take from there: no one has a slower copy."""
    torch = pytest.importorskip("torch")
    from tilewright.runtime.torch import TorchRuntime

    monkeypatch.setattr(TorchRuntime, "is_pinned", lambda runtime, array: array is not pixels)
    asked, empty = [], torch.empty
    monkeypatch.setattr(
        torch,
        "empty",
        lambda *shape, pin_memory, **how: asked.append(pin_memory) or empty(*shape, **how),
    )
    plan = SimpleNamespace(memory="resident", device=CUDA)
    program = SimpleNamespace(runtime=TorchRuntime(CPU), plan=plan)
    pinned = memory.pin(program, pixels)
    assert asked == [True] and pinned is not pixels
    np.testing.assert_array_equal(pinned, pixels)
    assert memory.pin(program, pinned) is pinned


def test_too_many_images_are_not_pinned(network, pixels, monkeypatch):
    monkeypatch.setattr(memory, "MOST_PINNED", pixels.nbytes - 1)
    program = program_of(network, DIRECT, OPENCL, 2, "resident")
    assert memory.pin(program, pixels) is pixels
    monkeypatch.setattr(memory, "MOST_PINNED", pixels.nbytes)
    assert memory.pin(program, pixels) is not pixels


@pytest.mark.parametrize("plan", ["resident", "streamed"])
def test_images_are_pinned_once(network, pixels, plan):
    streamed = program_of(network, DIRECT, OPENCL, 2, plan)
    pinned = memory.pin(streamed, pixels)
    np.testing.assert_array_equal(pinned, pixels)
    assert streamed.runtime.is_pinned(pinned)
    assert memory.pin(streamed, pinned) is pinned
    another = program_of(network, DIRECT, OPENCL, 2, plan)
    assert memory.pin(another, pinned) is pinned  # every rung of a ladder sends the same images


def test_pinned_images_go_straight_and_others_through_pinned_memory(network, pixels, straight):
    program = program_of(network, DIRECT, OPENCL, 2, "streamed")
    through = program(pixels)
    np.testing.assert_array_equal(program(memory.pin(program, pixels)), through)
    np.testing.assert_array_equal(program(memory.pin(program, pixels)[::-1])[::-1], through)
    assert straight == [*[False] * memory.SLOTS, *[True] * memory.SLOTS, *[False] * memory.SLOTS]


def test_a_ladder_times_what_a_run_times(network, pixels, straight):
    entered = contest.Contest(pixels, 2)
    entered.enter("direct", DIRECT, network, OPENCL, "streamed")
    for turn in entered.subjects.values():
        turn()
    assert len(straight) >= 2 * memory.SLOTS
    assert all(straight)


def test_a_run_sends_straight(network, pixels, straight, tmp_path):
    weights.save(network, tmp_path / "plain.safetensors")
    np.savez(tmp_path / "images.npz", images=pixels)
    request = job.Request(
        net=str(tmp_path / "plain.safetensors"), data=str(tmp_path / "images.npz"), batch=2,
        device=OPENCL, rung="direct", memory="streamed",
    )  # fmt: skip
    job.make_ready(request, Trace())
    assert straight
    assert all(straight)
