"""What the fused kernel does with each layer, and how close it comes to the machine's best."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

import numpy as np

from tilewright.errors import unknown
from tilewright.fuse.cpu.build import assembly, host
from tilewright.fuse.cpu.generate import symbol
from tilewright.fuse.cpu.peak import Peak
from tilewright.fuse.cpu.run import FusedNetwork
from tilewright.fuse.cpu.schedule import ConvolutionGroup, DenseGroup, Group
from tilewright.model.network import Network

IMAGES = 640
REPEATS = 9


@dataclass(frozen=True)
class GroupFacts:
    """One group of layers: its register tile, its arithmetic for an image, and its speed."""

    layers: tuple[str, ...]
    tile: str
    accumulators: int
    loads_per_fma: float
    nominal_flops: int
    executed_flops: int
    seconds: float

    @property
    def rate(self) -> float:
        """Executed FLOP a second."""
        return self.executed_flops * IMAGES / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Explanation:
    level: str
    lanes: int
    peak: float
    groups: tuple[GroupFacts, ...]


def explain(network: Network) -> Explanation:
    """Run a network on random pixels and put each group's time beside its schedule.

    The network and the peak take turns, and the best of each counts: both on a machine at rest.
    """
    fused = FusedNetwork(network)
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (IMAGES, *network.input.shape), np.uint8)
    outputs = np.empty((IMAGES, *network.output_shape), np.float32)
    fused.run(images, outputs)
    peak, best, ticks = Peak(), float("inf"), np.zeros(1)
    for _ in range(REPEATS):
        start = time.perf_counter()
        counted = fused.run(images, outputs)
        elapsed = time.perf_counter() - start
        if elapsed < best:
            best, ticks = elapsed, counted.astype(np.float64)
        peak.measure()
    seconds = best * ticks / ticks.sum()
    plan = fused.compiled.schedule
    facts = tuple(
        _facts(group, float(time_)) for group, time_ in zip(plan.groups, seconds[1:], strict=True)
    )
    return Explanation(host().level, plan.target.lanes, peak.best, facts)


def machine_code(network: Network, layer: str) -> str:
    """The longest run of straight code in a layer's function: its inner loop."""
    fused = FusedNetwork(network)
    groups = {s.name: g for g in fused.compiled.schedule.groups for s in g.stages}
    if layer not in groups:
        raise unknown("layer of the fused kernel", layer, groups)
    text = assembly(network, host())
    body = re.split(rf"^{re.escape(symbol(groups[layer]))}:", text, flags=re.MULTILINE)[1]
    body = body.partition(".Lfunc_end")[0]
    blocks = re.split(r"\n(?=\.LBB)", body)
    return max(blocks, key=lambda block: block.count("fma") * 1000 + len(block)).rstrip()


def _facts(group: Group, seconds: float) -> GroupFacts:
    layers = tuple(stage.name for stage in group.stages)
    nominal = sum(stage.flops for stage in group.stages)
    if isinstance(group, ConvolutionGroup):
        tile = f"{group.tile[0]}x{group.tile[1]} positions x {group.blocks[0].width} channels"
        return GroupFacts(
            layers, tile, group.accumulators, group.loads_per_fma, nominal,
            group.executed_flops, seconds,
        )  # fmt: skip
    if isinstance(group, DenseGroup):
        width = group.blocks[0].width
        sums = group.images * width
        tile = f"{group.images} vectors x {width} outputs"
        return GroupFacts(
            layers, tile, sums, (group.images + width) / sums, nominal, nominal, seconds
        )
    return GroupFacts(layers, "-", 0, 0.0, nominal, nominal, seconds)
