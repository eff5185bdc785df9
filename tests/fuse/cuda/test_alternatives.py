"""What a tuner may try instead of the planner's own choice: all of it can be built, none twice."""

from __future__ import annotations

import pytest

from tests.fuse.cuda.test_choice import MANY
from tilewright.fuse.cuda.alternatives import MOST, alternatives
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.choice import Choice, Stacked
from tilewright.fuse.cuda.cut import build, choose
from tilewright.model import zoo
from tilewright.model.layers import Convolution, Pixels
from tilewright.model.network import Network


def shapes(choices: list[Choice]) -> set[tuple[tuple[int, int], ...]]:
    return {
        tuple((k.warps, k.groups) for k in each.kernels if isinstance(k, Stacked))
        for each in choices
    }


@pytest.mark.parametrize(
    ("network", "precision"),
    [(zoo.network("ece408"), "fp16"), (MANY, "fp32")],
    ids=["ece408-fp16", "many-fp32"],
)
def test_all_can_be_built_and_the_own_choice_is_the_first(network: Network, precision: str) -> None:
    arithmetic = ARITHMETICS[precision]
    found = list(alternatives(network.stages, arithmetic, 90))
    assert found[0] == choose(network.stages, arithmetic, 90)
    assert len(set(found)) == len(found) > 20 and len(found) <= MOST + 1
    plans = [tuple(build(network.stages, arithmetic, 90, each)) for each in found]
    assert len(set(plans)) == len(plans)


def test_one_group_to_a_block_and_other_cuts_come_early() -> None:
    """With few images, many groups to a block leave multiprocessors idle."""
    network = zoo.network("cifar10")
    early = list(alternatives(network.stages, ARITHMETICS["fp32"], 90))[:20]
    assert {len(each.kernels) for each in early} == {1, 2, 3, 4}
    assert {((8, 1),), ((16, 1),)} <= shapes(early)


def test_a_single_layer_has_some_too() -> None:
    network = Network("one", Pixels((3, 32, 32)), (Convolution(16, 5, padding=2),))
    assert len(list(alternatives(network.stages, ARITHMETICS["tf32"], 90))) > 5
