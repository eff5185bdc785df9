"""What a tuner may try instead of the rules' own choice: all of it can be built, none twice."""

from __future__ import annotations

import msgspec
import pytest

from tests.fuse.cpu.machines import MACHINES
from tests.fuse.cpu.test_choice import SMALL
from tilewright.fuse.cpu.alternatives import MOST, alternatives
from tilewright.fuse.cpu.choice import build, choose
from tilewright.model import zoo
from tilewright.model.layers import FullyConnected, Pixels
from tilewright.model.network import Network


@pytest.mark.parametrize("level", MACHINES)
@pytest.mark.parametrize("network", [zoo.network("ece408"), SMALL], ids=lambda each: each.name)
def test_all_can_be_built_and_the_own_choice_is_the_first(network: Network, level: str) -> None:
    found = list(alternatives(network, MACHINES[level]))
    assert found[0] == choose(network, MACHINES[level])
    assert 5 < len({msgspec.json.encode(each) for each in found}) == len(found) <= MOST
    for each in found:
        build(network, MACHINES[level], each)


def test_a_network_without_convolutions_has_its_own_choice_alone() -> None:
    network = Network("one", Pixels((1, 3, 3)), (FullyConnected(4),))
    assert len(list(alternatives(network, MACHINES["sse"]))) == 1
