"""Other schedules for a network than the rules choose: for a tuner, who times them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from tilewright.errors import TilewrightError
from tilewright.fuse.cpu.build import Machine
from tilewright.fuse.cpu.choice import Choice, build, choose
from tilewright.fuse.cpu.grouped import ConvolutionGroup
from tilewright.fuse.cpu.schedule import Schedule, by_channels, by_images
from tilewright.model.network import Network

# Tiles in units of the pooling window, or of a position where there is none.
UNITS = ((1, 1), (1, 2), (1, 3), (1, 4), (1, 6), (1, 8), (2, 1), (2, 2), (2, 3), (2, 4), (3, 2))
# Vectors of images that large products take at once, and what of their inputs they read at a time.
TOGETHER, CHUNKS = (2, 4, 8), (2**13, 2**14, 2**15)
MOST = 80  # choices in all
MOST_CHANGES = 2  # tiles that differ from the rules' own

Tiles = Mapping[str, tuple[int, int]]


def alternatives(network: Network, on: Machine) -> Iterator[Choice]:
    """The rules' own choice, then others: those that differ in fewer tiles first."""
    own = choose(network, on)
    many, few = by_images(network, on.target), by_channels(network, on.target)
    yield own
    yield from itertools.islice(_possible(network, on, own, many, few), MOST - 1)


def _possible(
    network: Network, on: Machine, own: Choice, many: Schedule, few: Schedule
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
                build(network, on, other)
            except TilewrightError:
                continue  # registers do not hold such a tile, or the picture is smaller
            yield other


def _changed(own: Tiles, schedule: Schedule, changes: int) -> Iterator[dict[str, tuple[int, int]]]:
    """Tiles of which so many are others."""
    windows = {
        group.stages[0].name: group.window
        for group in schedule.groups
        if isinstance(group, ConvolutionGroup)
    }
    for names in itertools.combinations(own, changes):
        for units in itertools.product(UNITS, repeat=changes):
            tiles = {
                name: (unit[0] * windows[name][0], unit[1] * windows[name][1])
                for name, unit in zip(names, units, strict=True)
            }
            if all(own[name] != tile for name, tile in tiles.items()):
                yield {**own, **tiles}
