"""Fully connected layers as LLVM code: sums of all inputs, for many images or for a few."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from functools import reduce

from tilewright.fuse.cpu.code import Function, Value
from tilewright.fuse.cpu.convolution import activation
from tilewright.fuse.cpu.grouped import DenseGroup
from tilewright.fuse.cpu.pictures import Picture
from tilewright.fuse.cpu.tiles import Block

# Inputs summed side by side, for sums that need not wait for each other, and how many sums need
# not: those of a few images are enough.
STRANDS, SUMS = 4, 8


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
    for images in range(1, group.images + 1):
        with (
            f.when(_equal(f, "%last", images)),
            f.loop(0, inputs, group.chunk) as begin,
        ):
            end = f.smaller(f.add(begin, group.chunk), str(inputs))
            for block in group.blocks:
                with f.loop(0, block.count) as b:
                    first = f.add(f.mul(b, block.width), block.first)
                    _add_products(f, block, first, images, inputs, outputs, begin, end)
    if group.activation:
        activate = activation(f, group.activation)
        with f.loop(0, f.mul("%last", outputs * lanes), lanes) as i:
            f.store(activate(f.load("%out", i)), "%out", i)


def _add_products(
    f: Function, block: Block, first: Value, images: int, inputs: int, outputs: int, begin: Value,
    end: Value,
) -> None:  # fmt: skip
    """Inputs `begin` to `end` into the sums of a block of outputs."""
    strands = max(1, STRANDS // images) if block.width > 1 else STRANDS
    target = f.at("%out", f.mul(first, f.lanes))
    weights = f.at("%w", f.add(f.mul(first, inputs), outputs))
    places = [(i, c) for i in range(images) for c in range(block.width)]
    start = [f.load(target, (i * outputs + c) * f.lanes) for i, c in places]

    def add(k: Value, strand: int, sums: list[Value]) -> None:
        """One input into the sums of a strand."""
        at = f.at(weights, f.mul(k, block.width))
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
    `%images`, what each has `apart` from the one before, with code for every number of them."""
    for images in range(1, group.images + 1):
        with nullcontext() if group.images == 1 else f.when(_equal(f, "%images", images)):
            for width, output in _blocks_of_few(f, group):
                sums = _products_of_few(f, images, width, output, before, after, apart)
                target = f.at("%out", output)
                for place, value in enumerate(sums):
                    image, c = divmod(place, width)
                    f.store(value, target, image * apart + c * f.lanes)
    if group.activation:
        activate = activation(f, group.activation)
        with f.loop(0, 1 if group.images == 1 else "%images") as number:
            for width, output in _blocks_of_few(f, group):
                target = f.at("%out", f.add(output, f.mul(number, apart)))
                for c in range(width):
                    f.store(activate(f.load(target, c * f.lanes)), target, c * f.lanes)


def _equal(f: Function, a: Value, b: int) -> Value:
    return f.op(f"icmp eq i64 {a}, {b}")


def _blocks_of_few(f: Function, group: DenseGroup) -> Iterator[tuple[int, Value]]:
    """In a loop over the blocks that are asked for: their widths, and their first outputs."""
    index = 0
    for block in group.blocks:
        first, last = f.larger("%first", str(index)), f.smaller("%last", str(index + block.count))
        with f.loop(first, last) as i:
            item = f.add(f.mul(f.add(i, -index), block.width), block.first)
            yield block.width, f.mul(item, f.lanes)
        index += block.count


def _products_of_few(
    f: Function, images: int, width: int, output: Value, before: Picture, after: Picture,
    apart: int,
) -> list[Value]:  # fmt: skip
    """Every input of an image broadcast, times the weights it has for so many vectors of outputs:
    the sums of the first image, then of the next."""
    runs, length, distance = _runs(before)
    unit, sums_of_one = width * f.lanes, images * width
    strands = max(1, SUMS // sums_of_one)
    weights = f.at("%w", f.add(f.mul(output, runs * length), after.size))
    bias = [f.load(f.at("%w", output), c * f.lanes) for c in range(width)]

    def add(source: Value, taps: Value, inputs: int, sums: list[Value]) -> None:
        """The next inputs, each into the sums of its strand."""
        for s in range(inputs):
            row = [f.load(taps, s * unit + c * f.lanes) for c in range(width)]
            for image in range(images):
                value = f.spread(source, image * apart + s)
                for c, weight in enumerate(row):
                    index = s % strands * sums_of_one + image * width + c
                    sums[index] = f.fma(value, weight, sums[index])

    def run(number: Value, sums: list[Value]) -> None:
        source = f.at("%x", f.mul(number, distance))
        taps = f.at(weights, f.mul(number, length * unit))
        step = max(2, strands)
        whole = length // step * step
        with f.carried_loop(0, whole, list(sums), step) as (k, current, carried):
            add(f.at(source, k), f.at(taps, f.mul(k, unit)), step, current)
        sums[:] = carried
        add(f.at(source, whole), f.at(taps, whole * unit), length - whole, sums)

    start = bias * images + [f.constant(0)] * (sums_of_one * (strands - 1))
    made = f.accumulate(runs, start, run)
    return [reduce(f.sum, made[place::sums_of_one]) for place in range(sums_of_one)]


def _runs(picture: Picture) -> tuple[int, int, int]:
    """A picture's values as runs without gaps: how many, how long, how far apart."""
    pixels = picture.height * picture.width
    if not picture.channels_last or picture.step == picture.channels or pixels == 1:
        return 1, picture.channels * pixels, 0
    return pixels, picture.channels, picture.step
