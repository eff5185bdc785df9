"""A call that is interrupted at a place of our choosing, as by a signal's handler."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any


class Interrupted(BaseException):
    """What a signal's handler raises."""


def interrupted(at: int, counts: Callable[[CodeType], bool], call: Callable[[], object]) -> bool:
    """Whether the call was interrupted before its bytecode number `at`, of the functions that
    count; signals' handlers run, and raise, nowhere else."""
    left = at

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if not counts(frame.f_code):
            return None
        frame.f_trace_opcodes = True
        left -= event == "opcode"
        if left < 0:
            raise Interrupted
        return trace

    usual = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except Interrupted:
        return True
    finally:
        sys.settrace(usual)
    return False
