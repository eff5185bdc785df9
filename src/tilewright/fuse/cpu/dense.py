"""Fully connected layers as LLVM code: sums of all inputs, for many images or for a few."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial, reduce

from tilewright.fuse.cpu.code import Function, Value
from tilewright.fuse.cpu.convolution import activation, blocks_asked_for
from tilewright.fuse.cpu.grouped import DenseGroup
from tilewright.fuse.cpu.parameters import LINE
from tilewright.fuse.cpu.pictures import Picture
from tilewright.fuse.cpu.tiles import Block

# Inputs summed side by side, for sums that need not wait for each other, and how many sums need
# not: those of a few images are enough.
STRANDS, SUMS = 4, 8
# Images of a set from which on large weights are fetched ahead: while sets are multiplied by a
# chunk of them nothing else would come, and 64 images of 3072-2048-2048-10 took 1.30 times as long
# (a core of an AMD EPYC, AVX-512, 2026-11-17). For fewer images the core's own fetching keeps up,
# and what is fetched twice took 1.2 times as long (784-1024-10, one and two images).
FETCHED = 4
# How far ahead, in floats. Eight times as far cost `ece408` with 8 to 14 images 5 to 9 % (the same
# core, 2026-11-18).
AHEAD = 4096
# Where lanes are images: while a chunk of inputs is multiplied by a block's weights, those by which
# it is multiplied so many blocks later are fetched. A block has but a KB or two of them before the
# next one's, which lie elsewhere, so that a core does not see them coming: 1,024 images of
# TensorFlow's example for MNIST took 1.19 times as long without, and 32 with AVX2 1.5 times (2
# cores of an AMD EPYC of the fifth generation, 2026-11-19).
BLOCKS_AHEAD = 2


def dense_of_images(f: Function, group: DenseGroup, before: Picture, after: Picture) -> None:
    """Sums live in the output while the inputs are taken in chunks, each read from the first cache.

    Every vector of images is a position; with several, a weight is read once for all of them. There
    are `%last` of them, and code for every number of them.
    """
    lanes = f.lanes
    inputs, outputs = before.size // lanes, after.size // lanes
    with f.loop(0, outputs) as o:
        value = f.spread("%w", o)
        for image in range(group.images):
            f.store(value, "%out", f.mul(f.add(o, image * outputs), lanes))
    blocks_ahead = BLOCKS_AHEAD if group.large else 0
    for images in range(1, group.images + 1):
        chunk = group.chunk * group.images // images
        with (
            f.when(_equal(f, "%last", images)),
            f.loop(0, inputs, chunk) as begin,
        ):
            end = f.smaller(f.add(begin, chunk), str(inputs))
            for block in group.blocks:
                with f.loop(0, block.count) as b:
                    first = f.add(f.mul(b, block.width), block.first)
                    ahead = blocks_ahead * block.width * inputs
                    _add_products(f, block, first, images, inputs, outputs, begin, end, ahead)
    if group.activation:
        activate = activation(f, group.activation)
        with f.loop(0, f.mul("%last", outputs * lanes), lanes) as i:
            f.store(activate(f.load("%out", i)), "%out", i)


def _add_products(
    f: Function, block: Block, first: Value, images: int, inputs: int, outputs: int, begin: Value,
    end: Value, ahead: int,
) -> None:  # fmt: skip
    """Inputs `begin` to `end` into the sums of a block; weights so far ahead are fetched."""
    strands = max(1, STRANDS // images) if block.width > 1 else STRANDS
    target = f.at("%out", f.mul(first, f.lanes))
    weights = f.at("%w", f.add(f.mul(first, inputs), outputs))
    places = [(i, c) for i in range(images) for c in range(block.width)]
    start = [f.load(target, (i * outputs + c) * f.lanes) for i, c in places]

    def add(k: Value, strand: int, sums: list[Value]) -> None:
        """One input into the sums of a strand."""
        at = f.at(weights, f.mul(k, block.width))
        # Once for a line, or for the few weights that are read in one go.
        if ahead and strand % max(1, LINE // block.width) == 0:
            f.fetch(at, ahead)
        values = [f.spread(at, c) for c in range(block.width)]
        source = f.at("%x", f.mul(k, f.lanes))
        for i in range(images):
            value = f.load(source, i * inputs * f.lanes)
            for c in range(block.width):
                index = (strand * images + i) * block.width + c
                sums[index] = f.fma(value, values[c], sums[index])

    sums = start + [f.constant(0)] * (len(places) * (strands - 1))
    length = f.op(f"sub i64 {end}, {begin}")
    even = f.add(begin, f.op(f"sub i64 {length}, {f.op(f'urem i64 {length}, {strands}')}"))
    with f.carried_loop(begin, even, sums, strands) as (k, current, carried):
        for strand in range(strands):
            add(f.add(k, strand), strand, current)
    with f.carried_loop(even, end, carried) as (k, current, carried):
        add(k, 0, current)
    for place, (i, c) in enumerate(places):
        total = reduce(f.sum, carried[place :: len(places)])
        f.store(total, target, (i * outputs + c) * f.lanes)


def dense_of_few(
    f: Function, group: DenseGroup, before: Picture, after: Picture, apart: int
) -> None:
    """Blocks of outputs `%first` to `%last`, whichever width they have, for a single image, or for
    `%images`, what each has `apart` from the one before.

    Images go in sets whose sums the registers hold, with code for every size of them. While a chunk
    of a block's weights is in a cache, all sets are multiplied by it; their sums live in the output
    meanwhile.
    """
    runs, length, _ = _runs(before)
    inputs = length if runs == 1 else runs  # chunks have whole runs
    chunk = max(1, group.chunk * inputs // (runs * length))
    for width, output in _blocks_of_few(f, group):
        target = f.at("%out", output)
        bias = [f.load(f.at("%w", output), c * f.lanes) for c in range(width)]
        weights = f.at("%w", f.add(f.mul(output, runs * length), after.size))
        products = partial(_products_of_few, f, group, width, weights, before, apart)
        if group.images == 1:
            _store_all(f, products("%x", (0, inputs), bias), target, width, apart)
        elif chunk >= inputs:
            for first, images in _sets_of_few(f, group):
                source, there = (f.at(p, f.mul(first, apart)) for p in ("%x", target))
                _store_all(f, products(source, (0, inputs), bias * images), there, width, apart)
        else:
            with f.loop(0, "%images") as number:
                _store_all(f, bias, f.at(target, f.mul(number, apart)), width, apart)
            only = f.op(f"icmp sle i64 %images, {group.images}")
            step = f.op(f"select i1 {only}, i64 {inputs}, i64 {chunk}")
            with f.loop(0, inputs, step) as begin:
                end = f.smaller(f.add(begin, step), str(inputs))
                for first, images in _sets_of_few(f, group):
                    source, there = (f.at(p, f.mul(first, apart)) for p in ("%x", target))
                    places = itertools.product(range(images), range(width))
                    start = [f.load(there, i * apart + c * f.lanes) for i, c in places]
                    _store_all(f, products(source, (begin, end), start), there, width, apart)
        if group.activation:
            activate = activation(f, group.activation)
            with f.loop(0, 1 if group.images == 1 else "%images") as number:
                there = f.at(target, f.mul(number, apart))
                for c in range(width):
                    f.store(activate(f.load(there, c * f.lanes)), there, c * f.lanes)


def _store_all(f: Function, sums: list[Value], target: Value, width: int, apart: int) -> None:
    """The sums of the first image, then of the next."""
    for place, value in enumerate(sums):
        image, c = divmod(place, width)
        f.store(value, target, image * apart + c * f.lanes)


def _sets_of_few(f: Function, group: DenseGroup) -> Iterator[tuple[Value, int]]:
    """In a loop over sets of images, as few as there can be and about equal: the first image of a
    set, and how many it has."""
    sets = f.over("%images", group.images)
    with f.loop(0, sets) as number:
        first, behind = (
            f.op(f"udiv i64 {f.mul(each, '%images')}, {sets}")
            for each in (number, f.add(number, 1))
        )
        count = f.op(f"sub i64 {behind}, {first}")
        for images in range(1, group.images + 1):
            with f.when(_equal(f, count, images)):
                yield first, images


def _equal(f: Function, a: Value, b: int) -> Value:
    return f.op(f"icmp eq i64 {a}, {b}")


def _blocks_of_few(f: Function, group: DenseGroup) -> Iterator[tuple[int, Value]]:
    """In a loop over the blocks that are asked for: their widths, and their first outputs."""
    for block, number in blocks_asked_for(f, group.blocks):
        item = f.add(f.mul(number, block.width), block.first)
        yield block.width, f.mul(item, f.lanes)


def _products_of_few(
    f: Function, group: DenseGroup, width: int, weights: Value, before: Picture, apart: int,
    source: Value, bounds: tuple[Value | int, Value | int], start: list[Value],
) -> list[Value]:  # fmt: skip
    """Inputs of some images broadcast, times the weights they have for so many vectors of outputs,
    added to the sums of the first image, then of the next. Bounds are those of runs of inputs, or
    of inputs where there is a single run."""
    runs, length, distance = _runs(before)
    unit, sums_of_one = width * f.lanes, len(start)
    strands = -(-SUMS // sums_of_one)
    ahead = AHEAD if group.large and sums_of_one >= FETCHED * width else 0

    def add(source: Value, taps: Value, inputs: int, sums: list[Value]) -> None:
        """The next inputs, each into the sums of its strand."""
        if ahead:
            for line in range(0, inputs * unit, LINE):
                f.fetch(taps, ahead + line)
        for s in range(inputs):
            row = [f.load(taps, s * unit + c * f.lanes) for c in range(width)]
            for image in range(sums_of_one // width):
                value = f.spread(source, image * apart + s)
                for c, weight in enumerate(row):
                    index = s % strands * sums_of_one + image * width + c
                    sums[index] = f.fma(value, weight, sums[index])

    def run(number: Value, begin: Value | int, end: Value | int, sums: list[Value]) -> None:
        first = f.at(source, f.mul(number, distance))
        taps = f.at(weights, f.mul(number, length * unit))
        step = max(2, strands)

        def loop(low: Value | int, high: Value | int, inputs: int) -> None:
            with f.carried_loop(low, high, list(sums), inputs) as (k, current, carried):
                add(f.at(first, k), f.at(taps, f.mul(k, unit)), inputs, current)
            sums[:] = carried

        if isinstance(begin, int) and isinstance(end, int):
            even = end - (end - begin) % step
            loop(begin, even, step)
            add(f.at(first, even), f.at(taps, even * unit), end - even, sums)
        else:
            left = f.op(f"urem i64 {f.op(f'sub i64 {end}, {begin}')}, {step}")
            middle = f.op(f"sub i64 {end}, {left}")
            loop(begin, middle, step)
            loop(middle, end, 1)

    sums = start + [f.constant(0)] * (sums_of_one * (strands - 1))
    if runs == 1:
        run("0", *bounds, sums)
    else:
        with f.carried_loop(*bounds, sums) as (number, current, carried):
            run(number, 0, length, current)
        sums = carried
    return [reduce(f.sum, sums[place::sums_of_one]) for place in range(sums_of_one)]


def _runs(picture: Picture) -> tuple[int, int, int]:
    """A picture's values as runs without gaps: how many, how long, how far apart."""
    pixels = picture.height * picture.width
    if not picture.channels_last or picture.step == picture.channels or pixels == 1:
        return 1, picture.channels * pixels, 0
    return pixels, picture.channels, picture.step
