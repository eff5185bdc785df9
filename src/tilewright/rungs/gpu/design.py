"""A layer's kernels as plain data: what is launched, on which blocks, with which buffers.

A design needs no device, so that it can be compiled for GPUs that are not here, explained and
tested. `ladder.gpu.prepare` makes it run.
"""

from __future__ import annotations

import operator
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from tilewright.model.layers import Convolution
from tilewright.model.network import Stage
from tilewright.runtime.dialect import (
    LARGEST_GRID,
    LARGEST_GRID_Z,
    Block,
    DoesNotFit,
    Grid,
    Limits,
    Source,
)

Array = NDArray[np.float32]
# Weight and bias of a layer into the arrays its kernels take, by argument.
Pack = Callable[[Array, Array], dict[str, Array]]
BLOCK_THREADS = 256  # where nothing else decides: full multiprocessors at up to 32 registers
# What is free to choose about a layer's kernels, by name: tile sizes and the like.
Options = Mapping[str, int]
EVERY_SPECIAL = Convolution(
    2, 1, padding=(0, 0, 1, 1), dilation=2, groups=2
).specials  # of a convolution


@dataclass(frozen=True)
class Loop:
    """Where one loop of the computation went. A kernel's extents multiply to its multiply-adds."""

    name: str
    extent: int
    place: str  # "block", "thread", "sequential", "registers", "reduced", ...


@dataclass(frozen=True)
class Traffic:
    """What threads load and store for one image; caches may serve loads.

    From and to device memory these are values of 4 bytes. From shared memory they are loads, of
    one value or of four neighbours at once: what the load units have to do.
    """

    global_loads: float = 0
    shared_loads: float = 0
    constant_loads: float = 0
    stores: float = 0


@dataclass(frozen=True)
class Work:
    """One kernel, launched once for a batch: `blocks` for every group of images.

    `arguments` names what it is given: `x` and `out`, parameters, scratch buffers, `images`.
    `index_operations` are those on whole numbers for one image, where a kernel works out the place
    of every tap; a warp takes its turn also for threads that are idle. `numbers` are whole numbers
    among the arguments; `shape` is the grid for so many images, where it is another. `adds_bias`: a
    layer without bias does not need it.
    """

    source: Source
    arguments: tuple[str, ...]
    blocks: int = 1
    images_per_block: int = 1
    loops: tuple[Loop, ...] = ()
    traffic: Traffic = Traffic()
    index_operations: float = 0.0
    numbers: Mapping[str, int] = field(default_factory=dict)
    shape: Callable[[int], Grid] | None = None
    adds_bias: bool = False

    @property
    def has_weights(self) -> bool:
        """Whether it multiplies by weights, which it is given or has in constant memory."""
        return "weight" in self.arguments or self.source.constant_floats > 0

    def grid(self, images: int) -> Grid:
        if self.shape is not None:
            return self.shape(images)
        return self.blocks, 1, -(-images // self.images_per_block)

    def covered(self, images: int) -> int:
        """Images that its blocks have room for: one that is not full loads as if it were."""
        return -(-images // self.images_per_block) * self.images_per_block

    def check(self, limits: Limits) -> None:
        """DoesNotFit if the device cannot launch it even for a single image."""
        self.source.check(limits)
        if not self._fits(1):
            blocks = " x ".join(f"{size:,}" for size in self.grid(1))
            most = " x ".join(f"{size:,}" for size in LARGEST_GRID)
            raise DoesNotFit(f"{self.source.name} needs a grid of {blocks} blocks; {most} is most")

    @property
    def most_images(self) -> int:
        """How many images one launch may have, for the size of its grid."""
        if self.shape is None:
            return LARGEST_GRID_Z
        return bisect(range(1, LARGEST_GRID_Z + 1), False, key=lambda n: not self._fits(n))

    def _fits(self, images: int) -> bool:
        return all(map(operator.le, self.grid(images), LARGEST_GRID))


class NotForLayer(DoesNotFit):
    """A rung does not compute such a layer at all."""


def as_they_are(weight: Array, bias: Array) -> dict[str, Array]:
    return {"weight": weight, "bias": bias}


@dataclass(frozen=True)
class Design:
    """The kernels of a layer, in order. `scratch` has the values an image needs in between,
    `workspace` those that a launch needs however many images it has."""

    works: tuple[Work, ...]
    scratch: Mapping[str, int] = field(default_factory=dict)
    pack: Pack = as_they_are
    workspace: Mapping[str, int] = field(default_factory=dict)

    def needed_by(self, stage: Stage) -> Design:
        """Without what a layer has no need of."""
        if f"{stage.name}.bias" in stage.parameter_shapes:
            return self
        return replace(self, works=tuple(work for work in self.works if not work.adds_bias))

    def misfit(self, limits: Limits) -> DoesNotFit | None:
        """What a device has too little of for one of the kernels, if it has."""
        try:
            for work in self.works:
                work.check(limits)
        except DoesNotFit as problem:
            return problem
        return None


@dataclass(frozen=True)
class Geometry:
    """The numbers of one convolution, under the names that its kernels know them by."""

    channels: int
    height: int
    width: int
    filters: int
    taps_y: int
    taps_x: int
    stride_y: int
    stride_x: int
    pad_y: int
    pad_x: int
    out_y: int
    out_x: int
    groups: int = 1
    dilation_y: int = 1
    dilation_x: int = 1
    padded: int = 0  # whether there is padding on any side

    @classmethod
    def of(cls, stage: Stage) -> Geometry:
        layer = stage.layer
        assert isinstance(layer, Convolution)
        _, height, width = stage.input_shape
        _, out_y, out_x = stage.output_shape
        sizes = (layer.filters, *layer.kernel, *layer.stride, *layer.padding[:2], out_y, out_x)
        further = (layer.groups, *layer.dilation, int(any(layer.padding)))
        return cls(stage.input_shape[0], height, width, *sizes, *further)

    @property
    def taps(self) -> int:
        """Products in one output's sum."""
        return self.channels // self.groups * self.taps_y * self.taps_x

    @property
    def positions(self) -> int:
        return self.out_y * self.out_x

    @property
    def outputs(self) -> int:
        return self.filters * self.positions

    @property
    def constants(self) -> dict[str, int | float]:
        return {name.upper(): value for name, value in vars(self).items()}


def loop_nest(
    geometry: Geometry,
    filters: str = "block",
    positions: str = "block and thread",
    channels: str = "sequential",
    taps: str = "sequential",
) -> tuple[Loop, ...]:
    """The loops of a convolution as it is defined, and where each of them went."""
    return (
        Loop("filter", geometry.filters, filters),
        Loop("y", geometry.out_y, positions),
        Loop("x", geometry.out_x, positions),
        Loop("channel", geometry.channels // geometry.groups, channels),
        Loop("kernel y", geometry.taps_y, taps),
        Loop("kernel x", geometry.taps_x, taps),
    )


# Options for a layer on a device.
Candidates = Callable[[Geometry, Limits], Iterable[Options]]
Choose = Callable[[Geometry, Limits], Options]
Build = Callable[[Geometry, Options], Design]


class Convolutions:
    """How a rung computes convolutions.

    `candidates` are all the options that fit a device, `choose` gives those that the rung itself
    likes best, the first candidate if it has no opinion, or DoesNotFit; `build` makes a design of
    options. `specials` are what it has code for that is out of the ordinary (`Layer.specials`):
    layers with others are computed like `direct` does or, if it is to be `alone`, not at all.
    """

    def __init__(
        self,
        candidates: Candidates,
        build: Build,
        choose: Choose | None = None,
        specials: frozenset[str] = frozenset(),
        alone: bool = False,
    ) -> None:
        self.candidates, self.build = candidates, build
        self.choose = choose or self._first
        self.specials, self.alone = specials, alone

    def design(self, geometry: Geometry, limits: Limits) -> Design:
        """The kernels that the rung itself chooses."""
        return self.build(geometry, self.choose(geometry, limits))

    def _first(self, geometry: Geometry, limits: Limits) -> Options:
        for options in self.candidates(geometry, limits):
            return options
        raise DoesNotFit("no choice of its tiles fits the device")


def preferring(
    preferred: Candidates,
    others: Candidates,
    build: Build,
    specials: frozenset[str] = frozenset(),
    alone: bool = False,
) -> Convolutions:
    """Chosen is the first of the preferred that fits; the last of them takes the least.

    All that fit are candidates, the others too. Both may raise DoesNotFit where nothing can.
    """

    def candidates(geometry: Geometry, limits: Limits) -> Iterator[Options]:
        try:
            every = (*preferred(geometry, limits), *others(geometry, limits))
        except DoesNotFit:
            return
        seen = []
        for options in every:
            if options not in seen and build(geometry, options).misfit(limits) is None:
                seen.append(options)
                yield options

    def choose(geometry: Geometry, limits: Limits) -> Options:
        problem = None
        for options in preferred(geometry, limits):
            problem = build(geometry, options).misfit(limits)
            if problem is None:
                return options
        assert problem is not None  # something is preferred
        raise problem

    return Convolutions(candidates, build, choose, specials, alone)


def source(
    name: str,
    file: str,
    block: Block,
    constants: Mapping[str, int | float],
    shared_floats: int = 0,
    constant_floats: int = 0,
) -> Source:
    """The kernel in a file of this folder, made for these constants."""
    return Source(
        name, text_of(file), block, tuple(constants.items()), shared_floats, constant_floats
    )


@cache
def text_of(file: str) -> str:
    """A kernel in this folder."""
    return (files("tilewright.rungs.gpu") / file).read_text()


def tiles(size: int, tile: int) -> int:
    """How many tiles cover a size."""
    return -(-size // tile)


def shared_size(*arrays: int) -> int:
    """Floats that shared arrays of so many take together: each starts on a multiple of 16 bytes."""
    *before, last = arrays
    return sum(4 * tiles(floats, 4) for floats in before) + last


def power_of_two(at_most: int) -> int:
    """The largest power of two that is no larger."""
    return 1 << (at_most.bit_length() - 1)


def fitting_tile(out: int, largest: int) -> int:
    """A power of two that covers a size, if it is no larger than the largest."""
    return min(largest, power_of_two(2 * out - 1))


def plane_block(options: Options) -> Block:
    """A tile of one output plane, a thread an output."""
    return options["columns"], options["rows"], 1


def square_tiles(geometry: Geometry, limits: Limits) -> Iterator[Options]:
    """Tiles of an output plane, the largest first; small planes get small tiles."""
    return (_plane_tile(geometry, largest, largest) for largest in (16, 8, 4, 2, 1))


def oblong_tiles(geometry: Geometry, limits: Limits) -> Iterator[Options]:
    """Tiles of an output plane of one to sixteen warps."""
    for columns in (8, 16, 32, 64, 128):
        for rows in (1, 2, 4, 8, 16, 32):
            if 32 <= columns * rows <= 512:
                yield _plane_tile(geometry, columns, rows)


def _plane_tile(geometry: Geometry, columns: int, rows: int) -> Options:
    return {
        "columns": fitting_tile(geometry.out_x, columns),
        "rows": fitting_tile(geometry.out_y, rows),
    }


def plane_tiles(geometry: Geometry, block: Block) -> tuple[int, int]:
    """Tiles of a plane along y and x."""
    return tiles(geometry.out_y, block[1]), tiles(geometry.out_x, block[0])
