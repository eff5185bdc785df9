"""A network's last fully connected layer and its softmax, for several images at a time.

Of one image they are one row of an operand's 16, a sum that two warps wait for product by product,
and a softmax that one warp computes, while the group waits at barriers: a fifth of the time that
`cifar10` takes in fp16 (H200, 2026-11-16). So a group keeps what its images' last layers before it
gave, and computes scores and probabilities of 8 images together, or of those that are left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.fuse.cuda.stack import Phase, Stack

# How many at most, if there is room; else fewer.
COUNTS = (8, 4, 2)
# Bytes that are set aside before weights take what there is.
LITTLE = 4096


def setting_aside(plan: Stack) -> Stack:
    """The same plan that holds as many images' features as there may be, if that takes little."""
    if not COUNTS or not _can_hold(plan):
        return plan
    made = replace(plan, held=COUNTS[0])
    return made if made.shared_bytes - plan.shared_bytes <= LITTLE else plan


def holding(plan: Stack, shared_bytes: int) -> Stack:
    """The same plan that holds as many images' features as there is room for.

    If it helps, the layer's weights make room: several images at a time read them seldom.
    """
    if plan.held > 1 or not _can_hold(plan):
        return plan
    for held in COUNTS:
        for phases in _phases(plan):
            made = replace(plan, phases=phases, held=held)
            if made.shared_bytes <= shared_bytes:
                return made
    return plan


def _phases(plan: Stack) -> Iterator[tuple[Phase, ...]]:
    yield plan.phases
    *others, last, softmax = plan.phases
    yield (*others, last.distant, softmax)


def _can_hold(plan: Stack) -> bool:
    """Whether the kernel ends so, and the layer's features are made in it, for it alone."""
    if len(plan.phases) < 3 or plan.strip is not None:
        return False
    last, softmax = plan.phases[-2:]
    taken = plan.reads(len(plan.phases) - 2)[0]
    return (
        softmax.operation.kind == "softmax"
        and softmax.target is None
        and last.shares is not None
        and last.operation.connected
        and not last.operation.pool
        and taken.held
        and taken.number >= len(plan.filled)
        and plan.readers(taken.number) == [last]
        and all(taken not in plan.reads(each)[1:] for each in range(len(plan.phases)))
    )
