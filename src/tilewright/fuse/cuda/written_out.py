"""How many steps of a sum are written out one after the other in its loop.

Written out they are faster, up to some length, and the compiler's time grows with it.
"""

from __future__ import annotations

from tilewright.fuse.cuda.stack import Phase, Stack
from tilewright.fuse.cuda.sums import runs_of

# Products of a convolution that are written out, each an instruction with its loads. A kernel of
# All-CNN (96 and 192 channels, fp16) with 7,776 took the compiler 40 CPU seconds, with 1,728 it
# took 4, and spilled no more. Nothing that was measured to gain by being written out has more than
# 1,152 (NVRTC 13.4, 2026-11-15).
MOST_PRODUCTS = 1200
# The same of all layers of a kernel: six of a VGG (64 to 256 channels, fp16) with 5,856 took it 8.3
# CPU seconds, with 2,976 they take 4.3, and spill less (2026-11-17).
MOST_IN_KERNEL = 3000
# Multiply-adds of steps that are written out without tensor cores: only the shortest are, of fully
# connected layers, whose loads then do not wait for each other.
MOST_MULTIPLY_ADDS = 128


def edges_of(plan: Stack, phase: Phase) -> tuple[int, int]:
    """Rows of zeros that tiles at a picture's edges leave out, with code of their own.

    Not where a group is alone: an image's instructions are then read for it alone, and those of
    `cifar10` take as long as they spare (one image took 7.4 to 7.5 µs with and without, H200,
    2026-11-18).
    """
    if phase.warpgroup or plan.groups == 1:
        return 0, 0
    assert phase.shares
    return phase.shares.left_out


def unrolled(plan: Stack, phase: Phase) -> int:
    """How many steps of a phase are written out.

    On tensor cores they are 5 to 12 % faster so; as multiply-adds they are so long that groups in
    different layers run out of instruction cache: 20 to 46 % slower (cifar10, H200, 2026-11-15).
    """
    steps, products = steps_of(plan, phase)
    if plan.arithmetic.tensor:
        return written_out(steps, products, most_products(plan))
    each = 4 * products * plan.arithmetic.step  # of a lane
    return max(1, min(steps, MOST_MULTIPLY_ADDS // each))


def written_out(steps: int, products: int, most_products: int = MOST_PRODUCTS) -> int:
    """How many of so many steps, of so many products each."""
    most = max(1, most_products // products)
    if steps <= most:
        return max(1, steps)
    # All rounds of the loop are alike, if that makes them no shorter than half.
    alike = [each for each in range(most, most // 2, -1) if steps % each == 0]
    return alike[0] if alike else most


def most_products(plan: Stack) -> int:
    """Of a layer, so that those of all layers are not too many; of layers that are alike one
    counts, as those that come again are printed once (`emit_repeats`)."""
    layers = {
        (phase.operation.alike, phase.shares): steps_of(plan, phase)
        for phase in plan.phases
        if phase.shares and not phase.warpgroup
    }
    for most in range(MOST_PRODUCTS, 0, -50):
        lengths = [products * written_out(steps, products, most)
                   for steps, products in layers.values()]  # fmt: skip
        if sum(lengths) <= MOST_IN_KERNEL:
            return most
    return 1


def steps_of(plan: Stack, phase: Phase) -> tuple[int, int]:
    """Whole steps of a sum, and the products of each: three times as many where tiles at the top
    and at the bottom have code of their own."""
    shares = phase.shares
    assert shares
    count, full, _ = runs_of(shares, phase.source)
    products = phase.operation.window.taps[0] * shares.rows * shares.columns
    if edges_of(plan, phase) != (0, 0):
        products *= 3
    # In parts each product is three, with two instructions for each of them that split or load.
    return count * full, products * shares.arithmetic.products**2
