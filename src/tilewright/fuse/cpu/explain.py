"""What the fused kernel does with each layer, and how close it comes to the machine's best."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

import numpy as np

from tilewright.environment import cpu_cores
from tilewright.errors import unknown
from tilewright.fuse.cpu.build import assembly, host
from tilewright.fuse.cpu.entry import symbol
from tilewright.fuse.cpu.peak import Peak
from tilewright.fuse.cpu.run import FusedNetwork, Variant
from tilewright.fuse.cpu.schedule import ConvolutionGroup, DenseGroup, Group
from tilewright.fuse.cpu.shares import Shares
from tilewright.model.network import Network

# Images of a run, at least: a call of few is repeated.
MANY = 640
# Runs last at least this long together.
SECONDS = 0.3


@dataclass(frozen=True)
class GroupFacts:
    """One group of layers: its register tile, its arithmetic for an image, and its speed."""

    layers: tuple[str, ...]
    tile: str
    accumulators: int
    loads_per_fma: float
    nominal_flops: int
    executed_flops: int
    images: int
    seconds: float

    @property
    def rate(self) -> float:
        """Executed FLOP a second."""
        return self.executed_flops * self.images / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Explanation:
    """`groups` are those of the schedule that most images of the batch go by."""

    level: str
    lanes: int
    lanes_are: str
    shares: Shares
    peak: float
    groups: tuple[GroupFacts, ...]


def explain(network: Network, images: int) -> Explanation:
    """Run a network on random pixels and put each group's time beside its schedule.

    The network and the peak take turns, and the best of each counts: both on a machine at rest.
    """
    fused = FusedNetwork(network)
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (images, *network.input.shape), np.uint8)
    outputs = np.empty((images, *network.output_shape), np.float32)
    fused.run(pixels, outputs)
    peak, best, ticks = Peak(), float("inf"), np.zeros(1)
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        peak.measure()
        for _ in range(max(1, MANY // images)):
            start = time.perf_counter()
            counted = fused.run(pixels, outputs)
            elapsed = time.perf_counter() - start
            if elapsed < best:
                best, ticks = elapsed, counted.astype(np.float64)
    divided = fused.shares(images, cpu_cores())
    plan = _variant(fused, divided).schedule
    facts = tuple(
        _facts(group, images, float(seconds))
        for group, seconds in zip(plan.groups, best * ticks[1:] / ticks.sum(), strict=True)
    )
    return Explanation(host().level, plan.target.lanes, plan.lanes_are, divided, peak.best, facts)


def machine_code(network: Network, layer: str, images: int) -> str:
    """The longest run of straight code in a layer's function: its inner loop."""
    fused = FusedNetwork(network)
    plan = _variant(fused, fused.shares(images, cpu_cores())).schedule
    groups = {s.name: g for g in plan.groups for s in g.stages}
    if layer not in groups:
        raise unknown("layer of the fused kernel", layer, groups)
    text = assembly(network, host(), plan)
    body = re.split(rf"^{re.escape(symbol(groups[layer]))}:", text, flags=re.MULTILINE)[1]
    body = body.partition(".Lfunc_end")[0]
    blocks = re.split(r"\n(?=\.LBB)", body)
    return max(blocks, key=lambda block: block.count("fma") * 1000 + len(block)).rstrip()


def _variant(fused: FusedNetwork, divided: Shares) -> Variant:
    """The schedule that most of the images go by."""
    return fused.many if 2 * divided.many > divided.images else fused.few


def _facts(group: Group, images: int, seconds: float) -> GroupFacts:
    layers = tuple(stage.name for stage in group.stages)
    nominal = sum(stage.flops for stage in group.stages)
    if isinstance(group, ConvolutionGroup):
        tile = f"{group.tile[0]}x{group.tile[1]} positions x {_times(group)} channels"
        return GroupFacts(
            layers, tile, group.accumulators, group.loads_per_fma, nominal,
            group.executed_flops, images, seconds,
        )  # fmt: skip
    if isinstance(group, DenseGroup):
        width = group.blocks[0].width
        sums = group.images * width
        # Where lanes are channels, inputs are broadcast and every weight is loaded for its sum.
        loads = (group.images + width) / sums
        rows = f"{group.images} vectors" if group.unit == 1 else "1 input"
        return GroupFacts(
            layers, f"{rows} x {_times(group)} outputs", sums, loads, nominal,
            group.executed_flops, images, seconds,
        )  # fmt: skip
    return GroupFacts(layers, "-", 0, 0.0, nominal, nominal, images, seconds)


def _times(group: ConvolutionGroup | DenseGroup) -> str:
    """How many channels a tile has, as vectors of them where lanes are channels."""
    width = group.blocks[0].width
    return f"{width}" if group.unit == 1 else f"{width}x{group.unit}"
