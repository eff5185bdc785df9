"""What is chosen about a network's machine code, as plain data: a plan holds it, and a file can."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Literal

import msgspec

from tilewright.errors import TilewrightError
from tilewright.fuse.chosen import Chosen
from tilewright.fuse.cpu.build import Machine
from tilewright.fuse.cpu.grouped import Convolved
from tilewright.fuse.cpu.schedule import Schedule, by_channels, by_images
from tilewright.fuse.cpu.together import Rules
from tilewright.fuse.cpu.winograd import WinogradGroup
from tilewright.model.network import Network
from tilewright.precision import FLOAT32, Precision

# What an image by channels costs if there is to be no choice between the schedules.
SINGLE = {"both": None, "few": 0.0, "many": math.inf}


class Choice(Chosen, frozen=True, forbid_unknown_fields=True):
    """Both schedules for CPUs with such vectors.

    `few` and `many` have the tile of each convolution, positions along y and x, where lanes are
    channels and where they are images. With `images` only the first is used, only the second, or,
    as the number of images has it, `both`. Large products take `together` vectors of images at
    once and read `chunk_bytes` of their inputs at a time. The convolutions in `winograd` are
    computed by that algorithm where lanes are images; their tiles are the positions of a chunk.
    `all` are those that it is for, in chunks that are not to be chosen.
    """

    vectors: str
    many: dict[str, tuple[int, int]]
    few: dict[str, tuple[int, int]]
    together: Annotated[int, msgspec.Meta(ge=1, le=16)]
    chunk_bytes: Annotated[int, msgspec.Meta(ge=64, le=2**24)]
    images: Literal["both", "few", "many"] = "both"
    winograd: tuple[str, ...] | Literal["all"] = ()


def rules_of(precision: Precision) -> Rules:
    """What the rules may choose from in an arithmetic."""
    return Rules(precision=precision)


def choose(network: Network, on: Machine, precision: Precision = FLOAT32) -> Choice:
    rules = rules_of(precision)
    many, few = by_images(network, on.target, rules), by_channels(network, on.target)
    faster = (g.stages[0].name for g in many.groups if isinstance(g, WinogradGroup))
    return Choice(
        on.level, _tiles(many), _tiles(few), rules.together, rules.chunk_bytes,
        winograd=tuple(faster),
    )  # fmt: skip


def build(
    network: Network, on: Machine, choice: Choice, precision: Precision = FLOAT32
) -> tuple[Schedule, Schedule]:
    """The schedules by images and by channels as they were chosen."""
    if choice.vectors != on.level:
        raise TilewrightError(
            f"options.vectors: machine code for {choice.vectors:.40}, and this CPU has {on.level}"
        )
    convolutions = {stage.name for stage in network.stages if stage.kind == "conv"}
    for field, tiles in (("many", choice.many), ("few", choice.few)):
        if tiles.keys() != convolutions:
            raise TilewrightError(
                f"options.{field}: tiles of {', '.join(tiles) or 'nothing':.60}, and the "
                f"convolutions are {', '.join(sorted(convolutions)) or 'none':.60}"
            )
    rules = rules_of(precision)
    fitting = {stage.name for stage in network.stages if rules.possible(stage)}
    faster = fitting if choice.winograd == "all" else set(choice.winograd)
    if wrong := faster - fitting:
        raise TilewrightError(
            f"options.winograd: {min(wrong):.40} cannot be computed so in {precision.name}"
        )
    free = faster if choice.winograd == "all" else ()
    tiles = {name: tile for name, tile in choice.many.items() if name not in free}
    rules = replace(
        rules,
        together=choice.together,
        chunk_bytes=choice.chunk_bytes,
        faster=frozenset(faster),
    )
    return (
        by_images(network, on.target, rules, tiles),
        by_channels(network, on.target, choice.few),
    )


def _tiles(schedule: Schedule) -> dict[str, tuple[int, int]]:
    return {
        group.stages[0].name: group.tile
        for group in schedule.groups
        if isinstance(group, Convolved)
    }
