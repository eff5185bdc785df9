"""Code of convolutions: what it computes is tested in test_run, how it looks here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fuse.cpu.assembly import MULTIPLY_ADDS, STACK, blocks_of
from tests.fuse.cpu.machines import MACHINES
from tilewright.fuse.cpu import build
from tilewright.fuse.cpu.schedule import by_images
from tilewright.model.layers import Convolution, MaxPool, Pixels, ReLU
from tilewright.model.network import Network

# LLVM orders instructions as a CPU likes them: one may run out of registers where others do not.
CPUS = {
    "skylake-avx512": "avx512", "znver4": "avx512", "haswell": "avx2", "znver3": "avx2",
    "cortex-a72": "neon", "neoverse-n1": "neon", "apple-m1": "neon",
}  # fmt: skip


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(
    "layers",
    [
        (Convolution(64, 5, padding=2), ReLU(), MaxPool(2)),
        (Convolution(50, 5), MaxPool(2)),
        (Convolution(32, 3, padding=1), ReLU()),
    ],
)
def test_registers_hold_the_sums(layers, cpu):
    network = Network("one", Pixels((32, 14, 14)), layers)
    machine = replace(MACHINES[CPUS[cpu]], cpu=cpu)
    plan = by_images(network, machine.target)
    (group,) = plan.groups
    name = "_".join(stage.name for stage in group.stages)
    blocks = blocks_of(name, build.assembly(network, machine, plan))
    sums = [each for each in blocks if len(MULTIPLY_ADDS.findall(each)) >= group.accumulators]
    assert sums
    assert not any(map(STACK.search, sums))
