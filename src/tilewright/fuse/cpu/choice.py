"""What is chosen about a network's machine code, as plain data: a plan holds it, and a file can."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec

from tilewright.errors import TilewrightError
from tilewright.fuse.chosen import Chosen
from tilewright.fuse.cpu.build import Machine
from tilewright.fuse.cpu.grouped import ConvolutionGroup
from tilewright.fuse.cpu.schedule import Schedule, by_channels, by_images
from tilewright.fuse.cpu.together import DEFAULT, Rules
from tilewright.model.network import Network

# What an image by channels costs if there is to be no choice between the schedules.
SINGLE = {"both": None, "few": 0.0, "many": math.inf}


class Choice(Chosen, frozen=True, forbid_unknown_fields=True):
    """Both schedules for CPUs with such vectors.

    `few` and `many` have the tile of each convolution, positions along y and x, where lanes are
    channels and where they are images. With `images` only the first is used, only the second, or,
    as the number of images has it, `both`. Large products take `together` vectors of images at
    once and read `chunk_bytes` of their inputs at a time.
    """

    vectors: str
    many: dict[str, tuple[int, int]]
    few: dict[str, tuple[int, int]]
    together: Annotated[int, msgspec.Meta(ge=1, le=16)]
    chunk_bytes: Annotated[int, msgspec.Meta(ge=64, le=2**24)]
    images: Literal["both", "few", "many"] = "both"


def choose(network: Network, on: Machine) -> Choice:
    many, few = by_images(network, on.target), by_channels(network, on.target)
    return Choice(on.level, _tiles(many), _tiles(few), DEFAULT.together, DEFAULT.chunk_bytes)


def build(network: Network, on: Machine, choice: Choice) -> tuple[Schedule, Schedule]:
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
    rules = Rules(together=choice.together, chunk_bytes=choice.chunk_bytes)
    return (
        by_images(network, on.target, rules, choice.many),
        by_channels(network, on.target, choice.few),
    )


def _tiles(schedule: Schedule) -> dict[str, tuple[int, int]]:
    return {
        group.stages[0].name: group.tile
        for group in schedule.groups
        if isinstance(group, ConvolutionGroup)
    }
