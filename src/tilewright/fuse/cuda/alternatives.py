"""Other kernels for layers than the planner chooses: for a tuner, who times them.

The planner's estimate is some per cent off (`generations`), and it is made for many images: with
few, fewer groups to a block may keep more multiprocessors busy. So layers may be cut into another
number of kernels, and each kernel be arranged otherwise: the best of every shape by estimate first,
then the rest; combinations of what comes early come early.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from tilewright.errors import TilewrightError
from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.arrange import SHAPES
from tilewright.fuse.cuda.choice import (
    Choice,
    Connected,
    Multiplied,
    Passed,
    Patched,
    Spread,
    Stacked,
)
from tilewright.fuse.cuda.cut import build, choose, cost_of, recut
from tilewright.fuse.cuda.dense import CHUNKS, STAGES
from tilewright.fuse.cuda.generations import Generation, generation
from tilewright.fuse.cuda.patches import GROUPS, Patches
from tilewright.fuse.cuda.patches_choice import image_cycles
from tilewright.fuse.cuda.patches_plain import DEPTHS, OWN
from tilewright.fuse.cuda.patches_tensor import COLUMNS, MOST_COLUMNS
from tilewright.fuse.cuda.stack import Stack
from tilewright.fuse.cuda.sums import WEIGHTS
from tilewright.model.network import Stage

MOST = 200  # choices in all
EACH = 24  # arrangements of a kernel
EXTRA = (0, 1, -1, 2, -2)  # kernels more than the planner would have
MORE_DIVISIONS = 2  # ways to divide an image besides the one that was chosen
FEW = (0, 16, 32, 64, 128, 256)  # images that a connected kernel takes as few
MOST_TILES = 5  # of 16 images, in a block of a dense kernel
PATCHES = 1, 2, 4  # of a block, along an axis

Kernel = Stacked | Multiplied | Connected | Patched | Spread | Passed


def alternatives(
    stages: Sequence[Stage], arithmetic: Arithmetic, capability: int
) -> Iterator[Choice]:
    """The planner's own choice, then others, the most promising first."""
    own = choose(stages, arithmetic, capability)
    cuts = [recut(stages, arithmetic, capability, extra) for extra in EXTRA]
    several = [
        _combinations(_ranked(cut, stages, arithmetic, capability))
        for cut in cuts
        if cut is not None
    ]
    found = itertools.chain.from_iterable(itertools.zip_longest(*several))
    yield own
    met = {own.kernels}  # with a kernel more, or fewer, there may be the same ones
    for kernels in itertools.islice((each for each in found if each is not None), MOST):
        if kernels not in met:
            met.add(kernels)
            yield replace(own, kernels=kernels)


def _ranked(
    cut: Choice, stages: Sequence[Stage], arithmetic: Arithmetic, capability: int
) -> list[list[Kernel]]:
    """For each kernel of a cut its arrangements."""
    gpu = generation(capability)
    ranked = []
    for index, kernel in enumerate(cut.kernels):
        found: dict[object, tuple[float, Kernel]] = {}
        for other in _others(kernel):
            kernels = (*cut.kernels[:index], other, *cut.kernels[index + 1 :])
            try:
                plan = build(stages, arithmetic, capability, replace(cut, kernels=kernels))[index]
            except TilewrightError:
                continue  # it does not fit, or there is no such one
            # Different weights may give the same plan.
            found.setdefault(plan, (_estimate(plan, gpu), other))
        by_estimate = [each for _, each in sorted(found.values(), key=lambda each: each[0])]
        best: dict[object, Kernel] = {}
        for each in by_estimate:
            best.setdefault(_shape(each), each)
        rest = [each for each in by_estimate if each not in best.values()]
        ranked.append([*best.values(), *rest][:EACH])
    return ranked


def _shape(kernel: Kernel) -> object:
    if isinstance(kernel, Stacked):
        return kernel.division, kernel.warps, kernel.groups, kernel.wide
    if isinstance(kernel, Connected):
        return kernel.few
    if isinstance(kernel, Patched):
        return kernel.groups, kernel.wide
    if isinstance(kernel, Spread):
        return kernel.tiles, kernel.columns
    if isinstance(kernel, Passed):
        return ()
    return kernel.more, kernel.chunk


def _others(kernel: Kernel) -> Iterator[Kernel]:
    """The kernel, and all that do the same operations."""
    yield kernel
    if isinstance(kernel, Stacked):
        divisions = range(kernel.division, kernel.division + MORE_DIVISIONS + 1)
        for division, (warps, groups), weight, wide in itertools.product(
            divisions, SHAPES, WEIGHTS, (False, True)
        ):
            yield Stacked(kernel.operations, division, warps, groups, weight, wide)
    elif isinstance(kernel, Connected):
        for few in FEW:
            yield replace(kernel, few=few)
    elif isinstance(kernel, Patched) and kernel.own:
        for images, down, across, groups, own, depth, twice in itertools.product(
            PATCHES, PATCHES, PATCHES, GROUPS, OWN, DEPTHS, (True, False)
        ):
            yield replace(kernel, images=images, down=down, across=across, groups=groups,
                          wide=own * 16 * groups // (images * down * across), own=own,
                          depth=depth, twice=twice)  # fmt: skip
    elif isinstance(kernel, Patched):
        sizes = itertools.product(
            PATCHES, PATCHES, PATCHES, GROUPS, range(COLUMNS, MOST_COLUMNS + 1, COLUMNS)
        )
        for turned, sharing, (images, down, across, groups, filters) in itertools.product(
            (False, True), (1, 2), sizes
        ):
            yield replace(kernel, images=images, down=down, across=across, groups=groups,
                          wide=filters, turned=turned, sharing=sharing)  # fmt: skip
    elif isinstance(kernel, Multiplied):
        tiles = range(MOST_TILES, 0, -1)
        for more, stages, chunk in itertools.product(tiles, STAGES, CHUNKS):
            yield replace(kernel, more=more, stages=stages, chunk=chunk)


def _estimate(plan: object, gpu: Generation) -> float:
    """Cycles an image; of dense kernels, which have no model, the order alone tells."""
    if isinstance(plan, Patches):
        return image_cycles(plan, gpu)
    return cost_of(plan, gpu) if isinstance(plan, Stack) else 0.0


def _combinations(ranked: Sequence[Sequence[Kernel]]) -> Iterator[tuple[Kernel, ...]]:
    """One of each, in the order of how far back they stand together."""
    heap = [(0, (0,) * len(ranked))]
    seen = {heap[0][1]}
    while heap:
        _, places = heapq.heappop(heap)
        yield tuple(of[place] for of, place in zip(ranked, places, strict=True))
        for index, place in enumerate(places):
            after = (*places[:index], place + 1, *places[index + 1 :])
            if place + 1 < len(ranked[index]) and after not in seen:
                seen.add(after)
                heapq.heappush(heap, (sum(after), after))
