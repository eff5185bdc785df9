"""How the fused kernel computes a network: groups of layers in tiles, and how values lie between.

There are two schedules. In both, a convolution takes along what follows it, a sum with a branch's
value, its activation and its pooling, where nobody else takes what they are made of. It works on
register tiles of output positions x output channels; where a pooling window follows, a tile is one
or more windows, and the pooling happens in registers. Nothing is padded: positions whose window
sticks out of the image skip the taps outside. Tiles with the same valid taps share their code, so
each axis is cut into a few `Span`s; where those would be many, as with a large kernel, the tiles at
the borders of the image share code that counts its taps in the run (`Border`).

`by_images`: lanes are images. A vector holds one activation of as many images as it has lanes, so
every layer is plain vertical arithmetic, whatever its shape. A tap costs a load of activations for
each position and a broadcast weight for each channel. Fully connected layers read every weight once
for each set of images they work on. Those with many weights therefore take several vectors of
images at a time, as their positions.

`by_channels`: lanes are output channels of one image, for when there are fewer images than lanes,
and for perceptrons, whose images are rows of a matrix, of any number.
The same tiles with the roles changed: a tap costs a broadcast activation for each position and a
load of weights for each vector of channels. A picture lies as [y][x][channel], its channels filled
up to whole vectors; what the surplus lanes compute is never read. Where half of the last vector or
more would be surplus, it holds the channels left over for several positions at once. Fully
connected layers with many weights wait until all images have come so far; all of them are
multiplied by a chunk of the weights at a time, as many at once as the registers have sums for. So
do convolutions of small pictures with many weights, which go block by block of filters over all of
them.

Channels in groups are convolutions of their own, one after the other. Where each filter has a
channel to itself and lanes are channels, lanes are channels of the input, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.fuse.cpu.grouped import (
    ConvolutionGroup,
    Convolved,
    DenseGroup,
    Group,
    PlainGroup,
    reads_once,
)
from tilewright.fuse.cpu.pictures import (
    Picture,
    channels_picture,
    lanes_picture,
    planar_picture,
    staggered_picture,
)
from tilewright.fuse.cpu.tiles import Target
from tilewright.fuse.cpu.together import DEFAULT, NONE, Rules, Takes, Tiles, groups_of
from tilewright.model.layers import Concat, Elementwise, Planar, Shape
from tilewright.model.network import Network


@dataclass(frozen=True)
class Schedule:
    """Groups in order. From group `gathered` on, several vectors of images go `together`; where
    lanes are channels, several images do.

    Value 0 is what goes into the network, value i + 1 what group i makes; `takes` says of which
    values each group makes its own: those of its first layer, then what is added.
    """

    target: Target
    lanes_are: str
    groups: tuple[Group, ...]
    gathered: int
    together: int
    takes: tuple[tuple[int, ...], ...]
    # How each value lies; the last is what comes out of the network.
    pictures: tuple[Picture, ...]

    @property
    def one_by_one(self) -> bool:
        """Whether images come one by one."""
        return self.lanes_are == "channels"

    @property
    def in_rows(self) -> bool:
        """Whether images are gathered from the beginning: rows of a matrix, for products alone."""
        products = not any(isinstance(group, Convolved) for group in self.groups)
        return self.one_by_one and self.gathered == 0 and products

    @property
    def last_readers(self) -> tuple[int, ...]:
        """The last group that takes each value; what comes out of the network outlives them all."""
        last = [len(self.groups)] * len(self.pictures)
        for index, taken in enumerate(self.takes):
            for value in taken:
                last[value] = index
        return tuple(last)

    @property
    def kept(self) -> tuple[int, ...]:
        """The values that outlive a vector of images: those that gathered groups take or make."""
        return tuple(v for v, last in enumerate(self.last_readers) if last >= self.gathered)

    @property
    def executed_flops(self) -> int:
        """FLOP that are computed for one image: a share of the peak is a share of these.

        The network's own count has the taps outside the image, too.
        """
        return sum(group.executed_flops for group in self.groups)


def by_images(
    network: Network, target: Target, rules: Rules = DEFAULT, tiles: Tiles = NONE
) -> Schedule:
    """The schedule for many images: a few rules, no search."""
    groups, takes = groups_of(network, target, 1, rules, tiles)
    gathered = _gathered(groups)
    shapes = [network.input.shape, *map(_written_shape, groups)]
    pictures = [lanes_picture(shape, target.lanes) for shape in shapes]
    for i in range(1, len(groups)):
        readers = [group for group, taken in zip(groups, takes, strict=True) if i in taken]
        # Only convolutions and poolings write and read row by row.
        if _by_rows(groups[i - 1]) and all(isinstance(g, Convolved) for g in readers):
            pictures[i] = staggered_picture(shapes[i], target.lanes)
    together = rules.together if gathered < len(groups) else 1
    return Schedule(
        target, "images", tuple(groups), gathered, together, tuple(takes), tuple(pictures)
    )


def by_channels(network: Network, target: Target, tiles: Tiles = NONE) -> Schedule:
    """The schedule for few images, one at a time; large products take several at once."""
    groups, takes = groups_of(network, target, target.lanes, DEFAULT, tiles)
    picture = channels_picture if _as_vectors(groups, takes) else planar_picture
    pictures = [picture(network.input.shape, target.lanes)]
    for group, taken in zip(groups, takes, strict=True):
        before = {pictures[value] for value in taken}
        same = _in_place(group) and len(before) == 1
        after = channels_picture(_written_shape(group), target.lanes)
        pictures.append(before.pop() if same else after)
    return Schedule(
        target, "channels", tuple(groups), _gathered(groups), 1, tuple(takes), tuple(pictures)
    )


def reads_pixels(plan: Schedule) -> bool:
    """Whether the values of an image could be read where they are, without any order."""
    pairs = zip(plan.groups, plan.takes, strict=True)
    return all(_one_by_one(g) and 0 not in taken[1:] for g, taken in pairs if 0 in taken)


def _gathered(groups: list[Group]) -> int:
    """The first of the groups that takes several images, or vectors of them, at once."""
    return next((i for i, group in enumerate(groups) if _gathers(group)), len(groups))


def _gathers(group: Group) -> bool:
    return reads_once(group) or (isinstance(group, DenseGroup) and group.images > 1)


def _as_vectors(groups: list[Group], takes: Takes) -> bool:
    """Whether somebody wants the channels of a pixel side by side.

    A convolution or product reads pixels as they come; poolings, softmax and sums want vectors.
    """
    as_given = {0}
    for index, (group, taken) in enumerate(zip(groups, takes, strict=True)):
        if as_given.isdisjoint(taken):
            continue
        if isinstance(group.stages[0].layer, Elementwise):
            as_given.add(index + 1)
        elif not (_one_by_one(group) and as_given.isdisjoint(taken[1:])):
            return True
    return False


def _one_by_one(group: Group) -> bool:
    """Whether a group reads what it computes with value by value, not as vectors."""
    if isinstance(group, ConvolutionGroup):
        return not group.channelwise
    return isinstance(group, DenseGroup)


def _written_shape(group: Group) -> Shape:
    """The shape a group writes: a picture, also where its activation comes after a Flatten."""
    shapes = [stage.output_shape for stage in group.stages]
    return next((shape for shape in reversed(shapes) if len(shape) == 3), shapes[-1])


def _by_rows(group: Group) -> bool:
    return isinstance(group, Convolved) or isinstance(group.stages[0].layer, Planar)


def _in_place(group: Group) -> bool:
    """Whether every activation stays where it is."""
    return isinstance(group, PlainGroup) and not isinstance(group.stages[0].layer, Planar | Concat)
