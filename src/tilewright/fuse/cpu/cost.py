"""What a schedule should cost, in cycles of one core: enough to choose between two of them."""

from __future__ import annotations

import math

from tilewright.fuse.cpu import winograd
from tilewright.fuse.cpu.grouped import ConvolutionGroup, DenseGroup, Group
from tilewright.fuse.cpu.schedule import Schedule
from tilewright.fuse.cpu.tiles import (
    MULTIPLY_ADDS,
    Target,
    far_taps,
    near_cycles,
    tap_cycles,
    weights_stay,
)
from tilewright.fuse.cpu.winograd import WinogradGroup
from tilewright.model.layers import Elementwise

# Convolutions run at the CPU's peak by both schedules. A weight that is used for a single image is
# no sooner used than it has come from the second cache or beyond: 44 GFLOP/s of a core's 100, 32
# bytes a cycle, on 2 cores of an AMD EPYC with AVX2 (2026-11-15, the layers of `tilewright explain
# fused` at batches 2 and 64). On 2 cores of a Xeon with AVX-512 (2026-11-15), whose last cache is
# slower, the 10 MB of ece408's first fully connected layer came at 6 to 8 bytes a cycle.
BYTES_A_CYCLE, FAR_BYTES_A_CYCLE = 32, 8
FAR_BYTES = 1_000_000  # what no core's second cache holds, beside the rest
# Where lanes are images, a chunk of inputs is multiplied by all outputs' weights, block by block,
# and those that lie beyond come more slowly. (Chosen: 16 images of two networks for MNIST and one
# for games took 1.1 to 1.3 times as long as by channels; a core of an AMD EPYC with AVX-512,
# 2026-11-18.)
LONE_BYTES_A_CYCLE = 8
# Where lanes are images, so are pictures; what does not fit goes to memory and comes from there, so
# many bytes in a cycle. (Chosen: so of 30 cases of networks with large pictures, many of 1x1 and
# grouped convolutions, those go image by image that took clearly less time so: 32 images, two cores
# of an AMD EPYC with AVX-512, and with that hidden, 2026-11-18. cifar64's pictures cost 13 % on a
# core of the Xeon, 2026-11-16.)
PICTURE_BYTES_A_CYCLE = 6
# And a pixel of each has to come into a vector: 0.33 to 0.4 cycles for each of pictures that caches
# hold, float32 (four networks, 64 images, two cores of an AMD EPYC with AVX-512, 2026-11-19).
TURNED_CYCLES = 0.35


def cycles(plan: Schedule) -> float:
    """For one image where lanes are channels, for a vector of images where lanes are images.

    Without what products of several images cost once for all of them (`cycles_once`).
    """
    return _computing(plan) + (0 if plan.one_by_one else _turning(plan))


def _computing(plan: Schedule) -> float:
    return sum(_cycles(group, plan.target) for group in plan.groups)


def _turning(plan: Schedule) -> float:
    return TURNED_CYCLES * plan.target.lanes * plan.pictures[0].values


def cycles_once(plan: Schedule) -> float:
    """What is to be read only once of the weights that several images take."""
    if not plan.one_by_one:
        return 0
    products = (g for g in plan.groups if isinstance(g, DenseGroup) and g.images > 1)
    convolutions = (g for g in plan.groups if isinstance(g, ConvolutionGroup))
    far = sum(_far_weights(group, plan.target)[1] for group in convolutions)
    return sum(map(_reading, products)) + 4 * far / FAR_BYTES_A_CYCLE


def _reading(group: DenseGroup) -> float:
    """For all weights to come, where lanes are channels."""
    size = 2 * group.executed_flops  # 4 bytes for every multiply-add
    far = group.unit > 8 and size > FAR_BYTES
    return size / (FAR_BYTES_A_CYCLE if far else BYTES_A_CYCLE)


def _cycles(group: Group, target: Target) -> float:
    lanes = target.lanes
    # Lanes of a single image are a vector; so are images of a single lane.
    values = math.prod(group.stages[0].output_shape) / group.unit
    layers = [stage.layer for stage in group.stages]
    rest = values * (1 + sum(x.cycles for x in layers if isinstance(x, Elementwise)))
    if isinstance(group, ConvolutionGroup):
        sums = group.executed_flops / 2 / group.unit / MULTIPLY_ADDS
        weights = 4 * _far_weights(group, target)[0] / FAR_BYTES_A_CYCLE
        pictures = _moved(group, lanes) / PICTURE_BYTES_A_CYCLE if group.unit == 1 else 0
        return sums * _slowed(group) + weights + pictures + rest
    if isinstance(group, WinogradGroup):
        return winograd.cycles(group.transforms, group.stages[0]) + rest
    if isinstance(group, DenseGroup):
        if group.unit != lanes or group.images > 1:
            return group.executed_flops / 2 / group.unit / MULTIPLY_ADDS + rest
        return _reading(group) + rest
    return rest


def _far_weights(group: ConvolutionGroup, target: Target) -> tuple[int, int]:
    """Weights that come from beyond the second cache, for an image or a vector of them, and once
    for all that go one by one."""
    rows = group.rows[-1].last if group.rows else 0
    depth = group.depth * math.prod(group.layer.kernel)
    if group.by_blocks:
        tiles = rows * group.columns[-1].last if group.columns else 0
        taps = far_taps(group.blocks, group.unit, depth, tiles, target)
        far = [0, 0]
        for count, weights, stay in taps:
            far[stay and group.waits] += depth * count * weights
        return far[0], far[1]
    return 0 if weights_stay(group.weights, target) else rows * group.weights, 0


def _moved(group: ConvolutionGroup, lanes: int) -> int:
    """Bytes of pictures, of a vector of images, that come from memory or go there."""
    read = sum(map(math.prod, group.stages[0].input_shapes))
    written = math.prod(group.stages[-1].output_shape)
    return sum(4 * lanes * each for each in (read, written) if 4 * lanes * each > FAR_BYTES)


def _slowed(group: ConvolutionGroup) -> float:
    """How many times as long as its multiply-adds alone a tile takes."""
    positions, taps = math.prod(group.tile), group.depth * math.prod(group.layer.kernel)
    taken = sum(
        b.count * (tap_cycles(positions, b) + near_cycles(group.unit * b.width, taps))
        for b in group.blocks
    )
    return taken * MULTIPLY_ADDS / sum(b.count * b.sums(positions) for b in group.blocks)


def few_costs(few: Schedule, many: Schedule) -> tuple[float, float, float]:
    """As shares of what a vector of images costs by images: an image by channels, what any number
    of them costs once, and how much more a vector of images costs that is alone."""
    vector = cycles(many)
    return cycles(few) / vector, cycles_once(few) / vector, _cycles_alone(many) / vector


def cost_as_rows(few: Schedule, many: Schedule) -> float:
    """What a vector of images costs as rows, as a share of what it costs by images once it is
    turned around."""
    return many.target.lanes * cycles(few) / _computing(many)


def _cycles_alone(plan: Schedule) -> float:
    """For the weights of large products to come for a single vector of images."""
    sizes = (2 * g.executed_flops for g in plan.groups if isinstance(g, DenseGroup) and g.large)
    return sum(size / (LONE_BYTES_A_CYCLE if size > FAR_BYTES else BYTES_A_CYCLE) for size in sizes)
