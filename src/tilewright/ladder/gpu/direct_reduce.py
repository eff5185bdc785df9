"""`direct-reduce`: a block a group of outputs, whose threads share each sum and reduce.

The thesis's "if" version with a parallel reduction. Up to 32 threads take every 32nd tap of an
output, then add their parts in shared memory, halving the number of adders five times. One float
of shared memory a thread, 30 to 34 registers (zoo, sm_90). It exposes more parallelism than there
are outputs, which pays where outputs are few and sums long: on single images of `cifar10` conv2 and
conv3 are 2.3 and 2.8 times as fast as with `direct`. Where outputs are plenty it loses (6.6 times,
H200, docs/ladder.md): each sum ends in log2(32) barriers, index arithmetic is done for every tap,
and neighbouring threads read neighbouring taps, not neighbouring pixels.
"""

from __future__ import annotations

from tilewright.ladder.gpu.design import (
    BLOCK_THREADS,
    Design,
    Geometry,
    Loop,
    Traffic,
    Work,
    power_of_two,
    source,
    tiles,
)
from tilewright.ladder.gpu.prepare import gpu_rung
from tilewright.runtime.dialect import Limits

REDUCERS = 32  # threads that share a sum, at most


def design(geometry: Geometry, limits: Limits) -> Design:
    return Design((reduce_work("direct_reduce_conv", geometry),))


def reduce_work(name: str, geometry: Geometry, argument: str = "x") -> Work:
    """The kernel of `reduce.cl` on an argument."""
    reducers = min(REDUCERS, power_of_two(geometry.taps))
    block = (reducers, BLOCK_THREADS // REDUCERS, 1)
    return Work(
        source(name, "reduce.cl", block, geometry.constants, shared_floats=block[0] * block[1]),
        (argument, "weight", "bias", "out"),
        blocks=tiles(geometry.outputs, block[1]),
        loops=(
            Loop("filter", geometry.filters, "block and thread"),
            Loop("y", geometry.out_y, "block and thread"),
            Loop("x", geometry.out_x, "block and thread"),
            Loop("channel", geometry.channels, "thread, reduced"),
            Loop("kernel y", geometry.taps_y, "thread, reduced"),
            Loop("kernel x", geometry.taps_x, "thread, reduced"),
        ),
        traffic=Traffic(
            global_loads=2 * geometry.outputs * geometry.taps,
            shared_loads=2 * geometry.outputs * (reducers - 1),
            stores=geometry.outputs,
        ),
    )


RUNG = gpu_rung(
    "direct-reduce",
    "a block an output group: threads share each sum and reduce, for more parallel work",
    design,
    against="direct",
)
