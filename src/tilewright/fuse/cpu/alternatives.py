"""Other schedules for a network than the rules choose: for a tuner, who times them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from tilewright.errors import TilewrightError
from tilewright.fuse.cpu.build import Machine
from tilewright.fuse.cpu.choice import Choice, build, choose
from tilewright.fuse.cpu.grouped import ConvolutionGroup, Convolved
from tilewright.fuse.cpu.schedule import Schedule
from tilewright.fuse.cpu.winograd import WinogradGroup
from tilewright.model.network import Network
from tilewright.precision import FLOAT32, Precision

# Tiles in units of the pooling window, or of a position where there is none; chunks in Winograd's
# tiles.
UNITS = ((1, 1), (1, 2), (1, 3), (1, 4), (1, 6), (1, 8), (2, 1), (2, 2), (2, 3), (2, 4), (3, 2))
# Vectors of images that large products take at once, and what of their inputs they read at a time.
TOGETHER, CHUNKS = (2, 4, 8), (2**13, 2**14, 2**15)
MOST = 80  # choices in all
MOST_CHANGES = 2  # tiles that differ from the rules' own

Tiles = Mapping[str, tuple[int, int]]


def alternatives(network: Network, on: Machine, precision: Precision = FLOAT32) -> Iterator[Choice]:
    """The rules' own choice, then others: those that differ in fewer tiles first."""
    own = choose(network, on, precision)
    many, few = build(network, on, own, precision)
    yield own
    others = _possible(network, on, own, many, few, precision)
    yield from itertools.islice(others, MOST - 1)


def _possible(
    network: Network, on: Machine, own: Choice, many: Schedule, few: Schedule, precision: Precision
) -> Iterator[Choice]:
    if many.gathered < len(many.groups):
        for together, chunk in itertools.product(TOGETHER, CHUNKS):
            other = replace(own, together=together, chunk_bytes=chunk)
            if other != own:
                yield other
    for changes in range(1, MOST_CHANGES + 1):
        made = (
            *(replace(own, many=tiles) for tiles in _changed(own.many, many, changes)),
            *(replace(own, few=tiles) for tiles in _changed(own.few, few, changes)),
        )
        for other in made:
            try:
                build(network, on, other, precision)
            except TilewrightError:
                continue  # registers do not hold such a tile, or the picture is smaller
            yield other


def _changed(own: Tiles, schedule: Schedule, changes: int) -> Iterator[dict[str, tuple[int, int]]]:
    """Tiles of which so many are others."""
    units = {
        group.stages[0].name: _unit(group)
        for group in schedule.groups
        if isinstance(group, Convolved)
    }
    for names in itertools.combinations(own, changes):
        for counts in itertools.product(UNITS, repeat=changes):
            tiles = {
                name: (count[0] * units[name][0], count[1] * units[name][1])
                for name, count in zip(names, counts, strict=True)
            }
            if all(own[name] != tile for name, tile in tiles.items()):
                yield {**own, **tiles}


def _unit(group: ConvolutionGroup | WinogradGroup) -> tuple[int, int]:
    """Positions that are not divided between tiles, or chunks of them."""
    if isinstance(group, WinogradGroup):
        return group.transforms.outputs, group.transforms.outputs
    return group.window
