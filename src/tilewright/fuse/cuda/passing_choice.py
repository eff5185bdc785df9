"""Which kernel passes an operation's words on, if any does."""

from __future__ import annotations

from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.behind import behind
from tilewright.fuse.cuda.operations import Operation
from tilewright.fuse.cuda.passing import Passing
from tilewright.fuse.cuda.pools import pools


def passing(arithmetic: Arithmetic, operation: Operation) -> Passing | None:
    return behind(arithmetic, operation) or pools(arithmetic, operation)
