"""Chosen rows and columns of pictures as LLVM code: vectors are copied from where tables say."""

from __future__ import annotations

import math

from tilewright.fuse.cpu.code import Function
from tilewright.fuse.cpu.pictures import Picture
from tilewright.model.layers import Take


def take(f: Function, layer: Take, unit: int, before: Picture, after: Picture) -> None:
    rows = f.table([row * before.pitch for row in layer.rows])
    columns = f.table([column * before.step for column in layer.columns])
    with (
        f.loop(0, math.ceil(after.channels / unit)) as c,
        f.loop("%first", "%last") as y,
    ):
        row = f.add(f.mul(c, unit * before.plane), f.entry(rows, y))
        target = f.add(f.mul(c, unit * after.plane), f.mul(y, after.pitch))
        with f.loop(0, after.width) as x:
            value = f.load("%x", f.add(row, f.entry(columns, x)))
            f.store(value, "%out", f.add(target, f.mul(x, after.step)))
