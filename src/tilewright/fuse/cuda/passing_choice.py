"""Which kernel passes an operation's words on, if any does."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.arriving import arriving, makes_words
from tilewright.fuse.cuda.behind import behind
from tilewright.fuse.cuda.operations import Operation
from tilewright.fuse.cuda.passing import Passing
from tilewright.fuse.cuda.pools import pools


def passing(arithmetic: Arithmetic, operation: Operation) -> Passing | None:
    return (
        behind(arithmetic, operation)
        or pools(arithmetic, operation)
        or arriving(arithmetic, operation)
    )


def only_passes(part: Sequence[Operation]) -> bool:
    """Whether another kernel than such a one need not be looked at: what making words of pixels
    costs a stack is not estimated."""
    return len(part) == 1 and makes_words(part[0])
