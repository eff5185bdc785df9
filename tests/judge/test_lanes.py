"""Each way to time a convolution computes it, and gives the time that it took."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tilewright.execute import Program
from tilewright.judge import lanes, sandbox
from tilewright.judge.allowance import Allowance
from tilewright.judge.lanes import DistantLane, Lane, LibraryLane, SharedLane
from tilewright.judge.office import Office
from tilewright.judge.remote import RemoteRuntime
from tilewright.model.layers import Convolution, Pixels
from tilewright.model.network import Network
from tilewright.plan import uniform
from tilewright.rungs import choose
from tilewright.runtime.device import CPU, OPENCL
from tilewright.runtime.opencl import missing
from tilewright.truth import reference
from tilewright.truth.attempt import compare
from tilewright.truth.guards import guarding
from tilewright.truth.trials import random_parameters

BARE = Network("one", Pixels((3, 8, 7)), (Convolution(4, 3, padding=1),))
NETWORK = BARE.with_parameters(random_parameters(BARE, np.random.default_rng(1)))
STAGE, IMAGES = NETWORK.stages[1], 5
GIVEN, MADE = (IMAGES, *STAGE.input_shape), (IMAGES, *STAGE.output_shape)


def in_worker(kind: type[SharedLane] | type[DistantLane]) -> Lane:
    office = Office(OPENCL, Allowance(), shared=2**20)
    opened = guarding(lambda device, memory: RemoteRuntime(device, office))
    # A rung with scratch, which is poisoned before every call.
    rung = replace(choose(OPENCL, "padded"), open_runtime=opened)
    program = Program(NETWORK, uniform(NETWORK, rung, OPENCL, IMAGES), {rung.name: rung})
    return kind(office, program, GIVEN, MADE)


def in_this_process() -> Lane:
    rung = choose(CPU, "im2col")
    program = Program(NETWORK, uniform(NETWORK, rung, CPU, IMAGES), {rung.name: rung})
    return LibraryLane(program, GIVEN, MADE)


def needs_a_worker(make: Callable[[], Lane]) -> Callable[[], Lane]:
    def made() -> Lane:
        if missing(OPENCL) or sandbox.protection().missing:
            pytest.skip("needs PoCL, Landlock and seccomp")
        return make()

    return made


@pytest.mark.usefixtures("quick_workers", "not_optimised")
@pytest.mark.parametrize(
    "make",
    [
        needs_a_worker(lambda: in_worker(SharedLane)),
        needs_a_worker(lambda: in_worker(DistantLane)),
        in_this_process,
    ],
    ids=["shared", "distant", "library"],
)
def test_a_lane_computes_what_it_is_given(
    make: Callable[[], Lane], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(lanes, "USUAL_CACHE", 2**16)
    monkeypatch.setattr(lanes, "LARGEST_CACHE", 2**16)
    lane = make()
    generator = np.random.default_rng(3)
    for cold in (True, False, True):
        x = generator.normal(size=GIVEN).astype(np.float32)
        seconds, out = lane.call(x, cold)
        assert seconds > 0
        assert compare(out, reference.layer(STAGE, NETWORK.parameters, x))[1] is None
