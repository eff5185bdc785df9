"""`padded`: the input zero-padded first, then `direct` without its bounds test.

The thesis's "pad" version. A first kernel writes the input with its border into a buffer of its
own; the convolution then reads it without asking. It trades four comparisons a tap for one more
pass over the input, which should pay where filters are many. The kernel takes 31 or 32 registers
instead of 54 to 64 (zoo, sm_90); on an H200 the convolution itself was slower all the same, not for
the pass that pads (docs/ladder.md). Without padding there is nothing to do, and this rung is
`direct`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilewright.rungs.gpu.design import (
    BLOCK_THREADS,
    Design,
    Geometry,
    Loop,
    Options,
    Traffic,
    Work,
    oblong_tiles,
    preferring,
    source,
    square_tiles,
    tiles,
)
from tilewright.rungs.gpu.direct import plane_work
from tilewright.rungs.gpu.prepare import gpu_rung


def build(geometry: Geometry, options: Options) -> Design:
    return padded_design("padded", geometry, options, plane_work)


def padded_design(
    rung: str,
    geometry: Geometry,
    options: Options,
    convolve: Callable[[str, Geometry, Options, str], Work],
) -> Design:
    """A padding kernel, then a convolution of what is padded already."""
    if not geometry.pad_y and not geometry.pad_x:
        return Design((convolve(f"{rung}_conv", geometry, options, "x"),))
    height = geometry.height + 2 * geometry.pad_y
    width = geometry.width + 2 * geometry.pad_x
    inside = replace(geometry, height=height, width=width, pad_y=0, pad_x=0, padded=0)
    size = geometry.channels * height * width
    pad = Work(
        source(f"{rung}_pad", "pad.cl", (BLOCK_THREADS, 1, 1), geometry.constants),
        ("x", "padded"),
        blocks=tiles(size, BLOCK_THREADS),
        loops=(Loop("padded pixel", size, "block and thread"),),
        traffic=Traffic(
            global_loads=geometry.channels * geometry.height * geometry.width, stores=size
        ),
    )
    convolution = convolve(f"{rung}_conv", inside, options, "padded")
    return Design((pad, convolution), {"padded": size})


RUNG = gpu_rung(
    "padded",
    "input zero-padded by a first kernel: no bounds test in the innermost loop",
    preferring(square_tiles, oblong_tiles, build),
    against="direct",
)
