"""`direct-reduce`: a block a group of outputs, whose threads share each sum and reduce.

The thesis's "if" version with a parallel reduction. Up to 32 threads take every 32nd tap of an
output, then add their parts in shared memory, halving the number of adders five times. One float
of shared memory a thread, 30 to 34 registers (zoo, sm_90). It exposes more parallelism than there
are outputs, which pays where outputs are few and sums long: on single images of `cifar10` conv2 and
conv3 are 2.3 and 2.8 times as fast as with `direct`. Where outputs are plenty it loses (6.6 times,
H200, docs/ladder.md): the place of every tap is worked out with some twenty operations on whole
numbers, which is its limit, each sum ends in log2(32) barriers with ever more threads idle,
and neighbouring threads read neighbouring taps, not neighbouring pixels.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.rungs.gpu.design import (
    BLOCK_THREADS,
    Design,
    Geometry,
    Options,
    Traffic,
    Work,
    loop_nest,
    power_of_two,
    preferring,
    source,
    tiles,
)
from tilewright.rungs.gpu.prepare import gpu_rung
from tilewright.runtime.dialect import Limits

REDUCERS = 32  # threads that share a sum, at most


def build(geometry: Geometry, options: Options) -> Design:
    return Design((reduce_work("direct_reduce_conv", geometry, options),))


def most_reducers(geometry: Geometry, limits: Limits) -> Iterator[Options]:
    """As many threads for a sum as can have a part of it."""
    reducers = min(REDUCERS, power_of_two(geometry.taps))
    yield {"reducers": reducers, "outputs": BLOCK_THREADS // REDUCERS}


def fewer_reducers(geometry: Geometry, limits: Limits) -> Iterator[Options]:
    """Blocks of two to sixteen warps."""
    for reducers in (32, 16, 8, 4, 2):
        for outputs in (1, 2, 4, 8, 16, 32, 64):
            if reducers <= geometry.taps and 64 <= reducers * outputs <= 512:
                yield {"reducers": reducers, "outputs": outputs}


def reduce_work(name: str, geometry: Geometry, options: Options, argument: str = "x") -> Work:
    """The kernel of `reduce.cl` on an argument."""
    reducers = options["reducers"]
    block = (reducers, options["outputs"], 1)
    steps = reducers.bit_length() - 1
    return Work(
        source(name, "reduce.cl", block, geometry.constants, shared_floats=block[0] * block[1]),
        (argument, "weight", "bias", "out"),
        blocks=tiles(geometry.outputs, block[1]),
        loops=loop_nest(
            geometry, filters="block and thread", channels="thread, reduced", taps="thread, reduced"
        ),
        traffic=Traffic(
            global_loads=2 * geometry.outputs * geometry.taps,
            # A warp's turn is one turn, also where a half or all but one of its threads are idle:
            # the first store, then two loads and a store in each step.
            shared_loads=geometry.outputs * reducers * (1 + 3 * steps),
            stores=geometry.outputs,
        ),
        index_operations=geometry.outputs * reducers * index_operations(geometry, reducers),
    )


def index_operations(geometry: Geometry, reducers: int) -> int:
    """Of a thread for one output, counted in the text of `reduce.cl`.

    A division by a constant is a product, a shift and a correction, a remainder one more. For every
    tap there are its channel, row and column, the test whether it is inside, two additions to where
    the window starts, four for an address of 64 bits, and two for the loop. Once there are the
    output's number, its filter, row and column, where its window starts (2), the image (2), the
    place in shared memory (2), two tests, addresses of output and bias (6), a test in each step.
    """

    def division(by: int) -> int:
        return 0 if by == 1 else 1 if by & (by - 1) == 0 else 3

    def remainder(by: int) -> int:
        return 0 if by == 1 else 1

    along_y = division(geometry.taps_y) + remainder(geometry.taps_y)
    place = division(geometry.taps_x) + remainder(geometry.taps_x) + along_y
    if geometry.channels > 1:
        place += division(geometry.taps_y * geometry.taps_x)
    test = 2 if geometry.pad_y or geometry.pad_x else 0
    sizes = (geometry.out_x, geometry.out_y)
    output = 1 + division(geometry.positions) + sum(division(n) + remainder(n) for n in sizes)
    steps = reducers.bit_length() - 1
    once = output + 2 + 2 + 2 + 2 + 6 + steps
    return once + tiles(geometry.taps, reducers) * (place + test + 2 + 4 + 2)


RUNG = gpu_rung(
    "direct-reduce",
    "a block an output group: threads share each sum and reduce, for more parallel work",
    preferring(most_reducers, fewer_reducers, build),
    against="direct",
)
