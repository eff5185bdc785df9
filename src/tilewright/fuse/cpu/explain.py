"""What the fused kernel does with each layer, and how close it comes to the machine's best."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.environment import cpu_cores
from tilewright.errors import unknown
from tilewright.fuse.cpu.build import Machine, assembly, host
from tilewright.fuse.cpu.entry import symbols
from tilewright.fuse.cpu.grouped import ConvolutionGroup, DenseGroup, Group
from tilewright.fuse.cpu.peak import Peak
from tilewright.fuse.cpu.run import FusedNetwork, Variant
from tilewright.fuse.cpu.schedule import Schedule
from tilewright.fuse.cpu.shares import Shares
from tilewright.fuse.cpu.together import DEFAULT, Rules
from tilewright.fuse.cpu.winograd import WinogradGroup
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
    """`groups` are those of the schedule that most images of the batch go by; `total` is all of it,
    with the time in which the pixels are read."""

    level: str
    lanes: int
    lanes_are: str
    shares: Shares
    peak: float
    groups: tuple[GroupFacts, ...]
    total: GroupFacts


def explain(network: Network, images: int, rules: Rules = DEFAULT) -> Explanation:
    """Run a network on random pixels and put each group's time beside its schedule.

    The network and the peak take turns, and the best of each counts: both on a machine at rest.
    """
    fused = FusedNetwork(network, rules=rules)
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
    return explanation(host().level, plan, divided, peak.best, best * ticks / ticks.sum())


def explanation(
    level: str, plan: Schedule, divided: Shares, peak: float, seconds: NDArray[np.float64]
) -> Explanation:
    """What a schedule does, and in which time: that of reading the pixels, then each group's."""
    images = divided.images
    groups = tuple(
        _facts(group, images, float(each))
        for group, each in zip(plan.groups, seconds[1:], strict=True)
    )
    nominal = sum(group.nominal_flops for group in groups)
    total = GroupFacts(
        ("total",), "", 0, 0.0, nominal, plan.executed_flops, images, float(seconds.sum())
    )
    return Explanation(level, plan.target.lanes, plan.lanes_are, divided, peak, groups, total)


def machine_code(network: Network, layer: str, images: int, rules: Rules = DEFAULT) -> str:
    """The inner loop of a layer by the schedule that most of so many images go by."""
    fused = FusedNetwork(network, rules=rules)
    plan = _variant(fused, fused.shares(images, cpu_cores())).schedule
    return inner_loop(network, host(), plan, layer)


def inner_loop(network: Network, on: Machine, plan: Schedule, layer: str) -> str:
    """The longest run of straight code in a layer's function."""
    named = zip(plan.groups, symbols(plan), strict=True)
    functions = {stage.name: name for group, name in named for stage in group.stages}
    if layer not in functions:
        raise unknown("layer of the fused kernel", layer, functions)
    text = assembly(network, on, plan)
    body = re.split(rf"^{re.escape(functions[layer])}:", text, flags=re.MULTILINE)[1]
    body = body.partition(".Lfunc_end")[0]
    blocks = re.split(r"\n(?=\.LBB)", body)
    # A multiply-add is called vfmadd231ps on x86 and fmla on ARM; plain SSE and AVX have mulps.
    arithmetic = re.compile(r"\b(?:vfmadd|fml[as]\b|v?mulps\b)")
    return max(blocks, key=lambda b: len(arithmetic.findall(b)) * 1000 + len(b)).rstrip()


def _variant(fused: FusedNetwork, divided: Shares) -> Variant:
    """The schedule that most of the images go by."""
    return fused.many if 2 * divided.many > divided.images else fused.few


def _facts(group: Group, images: int, seconds: float) -> GroupFacts:
    layers = tuple(stage.name for stage in group.stages)
    nominal = sum(stage.flops for stage in group.stages)
    if isinstance(group, ConvolutionGroup | WinogradGroup):
        tile = f"{group.tile[0]}x{group.tile[1]} positions x {_times(group)} channels"
        if isinstance(group, WinogradGroup):
            side = group.transforms.outputs
            tile = f"Winograd {side}x{side}: {group.tiles} tiles x {_times(group)}"
        return GroupFacts(
            layers, tile, group.accumulators, group.loads_per_fma, nominal,
            group.executed_flops, images, seconds,
        )  # fmt: skip
    if isinstance(group, DenseGroup):
        width = group.blocks[0].width
        sums = group.images * width
        # Where lanes are channels, inputs are broadcast and every weight is loaded for the sums of
        # all images.
        loads = (group.images + width) / sums
        many = "s" if group.images > 1 else ""
        rows = f"{group.images} {'vector' if group.unit == 1 else 'input'}{many}"
        return GroupFacts(
            layers, f"{rows} x {_times(group)} outputs", sums, loads, nominal,
            group.executed_flops, images, seconds,
        )  # fmt: skip
    return GroupFacts(layers, "-", 0, 0.0, nominal, group.executed_flops, images, seconds)


def _times(group: ConvolutionGroup | WinogradGroup | DenseGroup) -> str:
    """How many channels a tile has, as vectors of them where lanes are channels."""
    width = group.blocks[0].width
    return f"{width}" if group.unit == 1 else f"{width}x{group.unit}"
