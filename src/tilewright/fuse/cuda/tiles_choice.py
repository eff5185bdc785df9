"""Which tiles a layer of few images gets: the best of all plans, by how long a launch takes."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.generations import Generation
from tilewright.fuse.cuda.operations import Form, Geometry, Operation
from tilewright.fuse.cuda.tiles import Tiles, all_tiles
from tilewright.model.layers import Shape

SCHEDULERS = 4  # of a multiprocessor: so many warps work at a time


@lru_cache(maxsize=1000)
def best_tiles(
    arithmetic: Arithmetic, part: tuple[Operation, ...], gpu: Generation, images: int
) -> Tiles | None:
    """The best for so many images, or fewer; None: none fits."""
    operation, softmax = part[0], part[1] if len(part) > 1 else None
    like = _like(operation.geometry, operation.result, operation.forms[0], softmax is not None)
    plan = _best_like(arithmetic, like, gpu, images)
    return plan and replace(plan, operation=operation, softmax=softmax)


@lru_cache(maxsize=1000)
def _like(geometry: Geometry, result: Shape, form: Form, softmax: bool) -> tuple[Operation, ...]:
    """Operations with all that tiles depend on: the same for layers that are alike."""
    source, summed, window, pool = (
        geometry.source, geometry.summed, geometry.window, geometry.pool
    )  # fmt: skip
    sums = Operation("sum", (), source, summed, result, window, pool, forms=(form,))
    return (sums, Operation("softmax", (), result, result, result)) if softmax else (sums,)


@lru_cache(maxsize=1000)
def _best_like(
    arithmetic: Arithmetic, part: tuple[Operation, ...], gpu: Generation, images: int
) -> Tiles | None:
    tried = _tried(arithmetic, part, gpu)
    best = min(tried, key=lambda each: each[1].cycles(images, gpu), default=None)
    return best[0] if best else None


# The same for all numbers of images.
@lru_cache(maxsize=50)
def _tried(
    arithmetic: Arithmetic, part: tuple[Operation, ...], gpu: Generation
) -> tuple[tuple[Tiles, _Launch], ...]:
    return tuple((plan, _launch(plan, gpu)) for plan in all_tiles(arithmetic, part, gpu))


def tiles_cycles(plan: Tiles, images: int, gpu: Generation) -> float:
    """About how long a launch takes."""
    return _launch(plan, gpu).cycles(images, gpu)


class _Launch(NamedTuple):
    """All that a launch's time depends on but the number of images."""

    tensor: bool
    warps: int
    resident: int  # blocks of a multiprocessor
    block_results: int
    results: int  # of an image
    column_blocks: int
    most_parts: int
    deep: int
    rounds: int
    steps: int  # of a round
    products: int  # of a step
    step_products: int  # with those of parts
    corners: float  # cycles that a round's rows take
    round_weights: int
    least: float  # cycles of a round

    def cycles(self, images: int, gpu: Generation) -> float:
        few = gpu.few
        blocks = -(-images * self.results // self.block_results) * self.column_blocks
        parts = max(1, min(self.most_parts, self.rounds, few.processors // blocks))
        load = -(-blocks * parts // few.processors)
        together = min(load, self.resident)
        others = max(0, together * self.warps - SCHEDULERS)
        product = few.product[self.tensor] + few.more_product[self.tensor] * others
        each = few.step + self.step_products * product
        fetch = self.corners + together * self.round_weights / few.weights_a_cycle
        one = max(few.round + self.steps * each + fetch, self.least)
        rounds = -(-self.rounds // parts) * one
        added = few.part * -(-parts // self.deep) * self.products
        gather = few.gather + added if parts > 1 else 0
        return few.launch + -(-load // self.resident) * (few.block + rounds) + gather


def _launch(plan: Tiles, gpu: Generation) -> _Launch:
    registers = plan.threads * (plan.registers + gpu.other_registers)
    products = plan.tiles * plan.columns
    return _Launch(
        tensor=plan.arithmetic.tensor,
        warps=plan.threads // 32,
        resident=max(1, min(gpu.shared_bytes // plan.shared_bytes, 65536 // registers)),
        block_results=plan.block_results,
        results=plan.results,
        column_blocks=plan.column_blocks,
        most_parts=plan.most_parts,
        deep=plan.deep,
        rounds=plan.rounds,
        steps=plan.chunk // plan.arithmetic.step,
        products=products,
        step_products=products * plan.arithmetic.products,
        corners=plan.corners * gpu.few.corner,
        round_weights=plan.round_weights,
        least=gpu.few.ahead / (plan.stages - 1),
    )
