"""Layers that make one of several values as LLVM code, where no convolution takes them along."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from tilewright.fuse.cpu.code import Function, Value
from tilewright.fuse.cpu.pictures import Picture
from tilewright.fuse.cpu.places import names


def add_up(f: Function, unit: int, before: Sequence[Picture], after: Picture) -> None:
    """Values at the same place, as vectors where all lie in the same way, else one by one: features
    that were a picture lie in another order where lanes are channels."""
    *sources, _ = names(len(before) + 1)
    if unit == 1 or all(picture == after for picture in before):
        with f.loop(0, after.size, f.lanes) as i:
            f.store(reduce(f.sum, [f.load(source, i) for source in sources]), "%out", i)
        return
    with f.loop(0, after.values) as p:
        places = [f.at(x, place_of(f, each, p)) for x, each in zip(sources, before, strict=True)]
        loaded = [f.op(f"load float, ptr {place}") for place in places]
        total = reduce(lambda a, b: f.op(f"fadd float {a}, {b}"), loaded)
        f.do(f"store float {total}, ptr {f.at('%out', place_of(f, after, p))}")


def put_behind(f: Function, unit: int, before: Sequence[Picture], after: Picture) -> None:
    """Channels of several behind each other. Where lanes are images, so are values: those of each
    are one piece of memory. Where lanes are channels, they are pieces of every pixel."""
    *sources, _ = names(len(before) + 1)
    start = 0
    for source, picture in zip(sources, before, strict=True):
        if unit == 1:
            with f.loop(0, picture.size, f.lanes) as i:
                f.store(f.load(source, i), "%out", f.add(i, start))
            start += picture.size
        elif after.height * after.width == 1:
            # Features, which may have been a picture.
            with f.loop(0, picture.values) as p:
                value = f.op(f"load float, ptr {f.at(source, place_of(f, picture, p))}")
                f.do(f"store float {value}, ptr {f.at('%out', f.add(p, start))}")
            start += picture.values
        else:
            with f.loop(0, picture.height * picture.width) as pixel:
                _copy(f, picture.channels, f.at(source, f.mul(pixel, picture.step)),
                      f.at(f.at("%out", start), f.mul(pixel, after.step)))  # fmt: skip
            start += picture.channels


def _copy(f: Function, count: int, source: Value, target: Value) -> None:
    """So many floats, and not one more: what is behind them is another's."""
    whole = count // f.lanes * f.lanes
    with f.loop(0, whole, f.lanes) as i:
        f.store_some(f.lanes, f.load(source, i), target, i)
    if rest := count - whole:
        f.store_some(rest, f.load_some(rest, source, whole), target, whole)


def place_of(f: Function, picture: Picture, index: Value) -> Value:
    """Where the value of that index in the order channel, y, x lies."""
    pixels = picture.height * picture.width
    if not picture.channels_last:
        return index
    channel = f.op(f"udiv i64 {index}, {pixels}")
    return f.add(f.mul(f.op(f"urem i64 {index}, {pixels}"), picture.step), channel)
