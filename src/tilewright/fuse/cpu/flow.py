"""What of a network computes, and who takes whose output."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tilewright.model.layers import Add
from tilewright.model.network import Network, Stage


@dataclass(frozen=True)
class Flow:
    """The stages that compute, in order.

    `sources` has, for every stage by its index, those of them (or the input, 0) whose outputs it
    takes, `readers` how often an output is taken.
    """

    stages: tuple[Stage, ...]
    sources: dict[int, tuple[int, ...]]
    readers: Counter[int]

    def run(self, place: int) -> list[Stage]:
        """The stage at a place and those right behind it, as long as nobody else takes what each
        gives. Some may take more: sums that it goes into."""
        found = [self.stages[place]]
        for stage in self.stages[place + 1 :]:
            before, taken = found[-1].index, self.sources[stage.index]
            alone = len(taken) == 1 or isinstance(stage.layer, Add)
            if before not in taken or self.readers[before] > 1 or not alone:
                break
            found.append(stage)
        return found


def flow(network: Network) -> Flow:
    """Stages that compute nothing hand on what they take."""
    gives = {0: 0}
    sources: dict[int, tuple[int, ...]] = {}
    for stage in network.stages[1:]:
        taken = tuple(gives[source] for source in stage.sources)
        computes = stage.layer.computes
        gives[stage.index] = stage.index if computes else taken[0]
        if computes:
            sources[stage.index] = taken
    stages = tuple(network.stages[index] for index in sources)
    return Flow(stages, sources, Counter(each for taken in sources.values() for each in taken))
