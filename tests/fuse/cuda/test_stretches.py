"""How many kernels are worth their launches: of all of a network, and of each stretch of it."""

from __future__ import annotations

from unittest import mock

import pytest

from tests.fuse.cuda.test_branches import resnet8
from tilewright.fuse.cuda import cut as cut_module
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.cut import MANY, Kernel, _worth_it, cost_of, cut, cycles
from tilewright.fuse.cuda.generations import HOPPER
from tilewright.fuse.cuda.patches import Patches
from tilewright.fuse.cuda.patches_choice import image_cycles
from tilewright.fuse.cuda.stack import Stack
from tilewright.model.layers import (
    AveragePool,
    Convolution,
    Flatten,
    FullyConnected,
    Layer,
    Pixels,
    ReLU,
    Softmax,
)
from tilewright.model.network import Network

# What a kernel more costs an image, and how much of its own time a stretch has to save.
LAUNCH = HOPPER.few.launch * HOPPER.few.processors / MANY


def costs(each: float, together: float, operations: int = 3) -> dict[tuple[int, int], float]:
    """Of operations that may all be one kernel, or each one of its own."""
    return {(0, operations): together, **{(n, n + 1): each for n in range(operations)}}


def test_a_stretch_is_cut_where_that_saves_its_launches_and_a_part_of_its_own_time() -> None:
    each = 1e6
    enough = HOPPER.worth_it * 3 * each + 2 * LAUNCH
    assert _worth_it(costs(each, 1.001 * enough), 3, HOPPER) == 3
    assert _worth_it(costs(each, 0.999 * enough), 3, HOPPER) == 1


def test_however_long_the_network_is() -> None:
    """Two layers that are better apart, before and behind others that take a hundred times as
    long."""
    short = {(0, 1): 1e6, (1, 2): 1e6, (0, 2): 2.5e6}
    long = {(2, 3): 1e8, (3, 4): 1e8}
    assert _worth_it({**short, **long}, 4, HOPPER) == 4
    assert _worth_it({**short, (0, 2): 2e6, **long}, 4, HOPPER) == 3


def test_a_thousand_operations_are_looked_at_in_stretches() -> None:
    """In time that grows as their number: no kernel has more than some."""
    many = 1000
    pairs = {(n, n + 2): 1.5e6 for n in range(0, many, 2)}
    alone = {(n, n + 1): 1e6 for n in range(many)}
    assert _worth_it({**alone, **pairs}, many, HOPPER) == many // 2
    assert _worth_it({**alone, **dict.fromkeys(pairs, 2.5e6)}, many, HOPPER) == many


def test_what_cannot_be_one_kernel_is_several() -> None:
    assert _worth_it({(0, 1): 1.0, (1, 2): 1.0}, 2, HOPPER) == 2


def long() -> Network:
    """A few layers that need no more than a picture each, then wide ones that take most."""
    layers: list[Layer] = []
    for filters in (16, 16, 16, 256, 256):
        layers += [Convolution(filters, 3, padding=1), ReLU()]
    layers += [AveragePool(32), Flatten(), FullyConnected(10), Softmax()]
    return Network("long", Pixels((3, 32, 32)), tuple(layers))


def cost(plan: Kernel) -> float:
    """Cycles an image, as kernels of several kinds are compared."""
    if isinstance(plan, Stack):
        return HOPPER.beside_others * cost_of(plan, HOPPER)
    if isinstance(plan, Patches):
        return image_cycles(plan, HOPPER)
    return cycles(plan, MANY, HOPPER) * HOPPER.few.processors / MANY


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("network", [resnet8(), long()], ids=lambda each: each.name)
def test_the_way_that_is_estimated_to_be_faster_is_taken(network: Network, precision: str) -> None:
    """What stretches promise is taken where the whole takes less so, clearly in fp16; so the chosen
    kernels never take more than those that all of the time says."""
    arithmetic = ARITHMETICS[precision]

    def taken(kernels: int) -> float:
        """Where stretches ask for so many kernels; nobody can give none."""
        with mock.patch.object(cut_module, "_worth_it", lambda *given: kernels):
            cut_module._choose.cache_clear()
            plans = cut(network.stages, arithmetic, 90)
        cut_module._choose.cache_clear()
        return sum(cost(each) + LAUNCH for each in plans)

    with (
        mock.patch.object(cut_module.planned, "read", lambda question: None),
        mock.patch.object(cut_module.planned, "keep", lambda question, choice: None),
    ):
        plain = taken(0)
        assert all(taken(kernels) <= plain for kernels in range(1, 8))
