"""Layers that make one of several values as LLVM code, where no convolution takes them along."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from tilewright.fuse.cpu.code import Function, Value
from tilewright.fuse.cpu.pictures import Picture
from tilewright.fuse.cpu.places import names
from tilewright.model.layers.multiply import Reach


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


def multiply(
    f: Function, reach: Reach, unit: int, before: Sequence[Picture], after: Picture
) -> None:
    """Two inputs. A number of the second that is for many of the first is loaded once for them
    where lanes are images; where lanes are channels, channels have a vector of such numbers."""
    first, second = before
    pixels = first.height * first.width
    if first == second == after or (unit == 1 and reach == "value"):
        with f.loop(0, after.size, f.lanes) as i:
            f.store(f.binary("fmul", f.load("%x", i), f.load("%x1", i)), "%out", i)
    elif unit == 1:
        with f.loop(0, first.channels) as channel, f.loop(0, pixels) as pixel:
            place = f.mul(f.add(f.mul(channel, pixels), pixel), f.lanes)
            factor = f.load("%x1", f.mul(channel if reach == "channel" else pixel, f.lanes))
            f.store(f.binary("fmul", f.load("%x", place), factor), "%out", place)
    elif reach != "value" and first == after and second.channels_last and (
        reach == "place" or second.height * second.width == 1
    ):  # fmt: skip
        with f.loop(0, pixels) as pixel, f.loop(0, first.step, f.lanes) as channel:
            place = f.add(f.mul(pixel, first.step), channel)
            factor = (
                f.load("%x1", channel)
                if reach == "channel"
                else f.spread("%x1", f.mul(pixel, second.step))
            )
            f.store(f.binary("fmul", f.load("%x", place), factor), "%out", place)
    else:
        with f.loop(0, after.values) as p:
            number = {"value": p, "channel": f.op(f"udiv i64 {p}, {pixels}"),
                      "place": f.op(f"urem i64 {p}, {pixels}")}[reach]  # fmt: skip
            a = f.op(f"load float, ptr {f.at('%x', place_of(f, first, p))}")
            b = f.op(f"load float, ptr {f.at('%x1', place_of(f, second, number))}")
            product = f.op(f"fmul float {a}, {b}")
            f.do(f"store float {product}, ptr {f.at('%out', place_of(f, after, p))}")


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
