"""What is said of a schedule, for every kind of CPU: nothing is run."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from rich.console import Console

from tests.fuse.cpu.machines import MACHINES, TARGETS
from tilewright.fuse.cpu.explain import explanation, inner_loop
from tilewright.fuse.cpu.schedule import by_channels, by_images
from tilewright.fuse.cpu.shares import Shares
from tilewright.model import zoo
from tilewright.model.layers import Convolution, MaxPool, Pixels, ReLU
from tilewright.model.network import Network
from tilewright.views.explain import report

SINGLE = Network("single", Pixels((3, 16, 16)), (Convolution(16, 5), ReLU(), MaxPool(2)))
# The tiles of cifar10's convolutions by both schedules.
TILES = {
    "avx512": (["2x2 positions x 6", "2x2 positions x 5", "2x2 positions x 5"],
               ["2x14 positions x 1x16", "2x6 positions x 2x16", "2x4 positions x 2x16"]),
    "avx2": (["2x2 positions x 3"] * 3,
             ["2x2 positions x 2x8", "2x2 positions x 3x8", "2x2 positions x 3x8"]),
    "avx": (["2x2 positions x 3"] * 3,
            ["2x2 positions x 2x8", "2x2 positions x 3x8", "2x2 positions x 3x8"]),
    "sse": (["2x2 positions x 3"] * 3,
            ["2x2 positions x 2x4", "2x2 positions x 3x4", "2x2 positions x 3x4"]),
    "neon": (["2x2 positions x 6", "2x2 positions x 5", "2x2 positions x 5"],
             ["2x2 positions x 4x4", "2x2 positions x 5x4", "2x4 positions x 3x4"]),
}  # fmt: skip


def explained(name, level, schedule, images):
    network = zoo.network(name)
    plan = schedule(network, TARGETS[level])
    seconds = np.full(len(plan.groups) + 1, 1e-3)
    return network, plan, explanation(level, plan, Shares(0, 0, images), 1e11, seconds)


def shown(network, found):
    screen = Console(width=100, record=True, file=io.StringIO())
    for part in report(network, found):
        screen.print(part)
    return screen.export_text()


@pytest.mark.parametrize("level", MACHINES)
@pytest.mark.parametrize("schedule", [by_images, by_channels])
@pytest.mark.parametrize("name", ["cifar10", "ece408", "ece408-2017"])
def test_the_table_of_every_cpu(name, schedule, level):
    network, plan, found = explained(name, level, schedule, 640)
    text = shown(network, found)
    lanes = TARGETS[level].lanes
    assert f"({level}: vectors of {lanes} {plan.lanes_are}), measured peak 100 GFLOP/s" in text
    assert max(map(len, text.splitlines())) <= 100
    for group in found.groups:
        assert group.tile.split(" x ")[0] in text
    if name == "cifar10":
        wanted = [f"{tile} channels" for tile in TILES[level][schedule is by_channels]]
        assert [group.tile for group in found.groups[:3]] == wanted


@pytest.mark.parametrize("schedule", [by_images, by_channels])
def test_the_total_counts_what_is_executed_in_all_of_the_time(schedule):
    network, plan, found = explained("cifar10", "avx2", schedule, 640)
    assert found.total.nominal_flops == network.flops
    assert found.total.executed_flops == plan.executed_flops
    assert plan.executed_flops == sum(group.executed_flops for group in found.groups)
    # Three convolutions, a product, a softmax, and the pixels: a millisecond each.
    assert found.total.rate == pytest.approx(plan.executed_flops * 640 / 6e-3)
    total = next(line for line in shown(network, found).splitlines() if line.startswith("total"))
    share = 100 * found.total.rate / 1e11
    assert f"{plan.executed_flops / 1e6:.2f}" in total
    assert f"{share:.1f} %" in total


def test_by_images_only_taps_inside_the_image_count():
    """13 % of cifar10's taps are in its padding."""
    network, plan, _ = explained("cifar10", "avx2", by_images, 1)
    images = [group.stages[0].input_shape[1] for group in plan.groups[:3]]
    assert images == [32, 16, 8]
    inside = sum(
        stage.flops * ((5 * size - 6) / (5 * size)) ** 2
        for stage, size in zip((network.stages[i] for i in (1, 4, 7)), images, strict=True)
    )
    rest = sum(stage.flops for stage in network.stages if stage.kind != "conv")
    assert plan.executed_flops == round(inside + rest)
    assert plan.executed_flops < 0.87 * network.flops


@pytest.mark.parametrize(
    ("level", "instruction"),
    [
        ("avx512", r"vfmadd\d+ps.*%zmm"),
        ("avx2", r"vfmadd\d+ps.*%ymm"),
        ("avx", r"vmulps.*%ymm"),
        ("sse", r"\tmulps.*%xmm"),
        ("neon", r"fmla\tv\d+\.4s"),
    ],
)
@pytest.mark.parametrize("schedule", [by_images, by_channels])
def test_the_inner_loop_is_multiply_adds_of_whole_vectors(level, instruction, schedule):
    """As many for each of the five taps of a row as the tile has sums."""
    network, on = SINGLE, MACHINES[level]
    plan = schedule(network, on.target)
    text = inner_loop(network, on, plan, "conv")
    assert len(re.findall(instruction, text)) == 5 * plan.groups[0].accumulators
