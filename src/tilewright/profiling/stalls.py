"""Why the warps of a kernel wait, as the GPU counts it: each reason with what it means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

HOPPER = 90  # compute capability; it alone counts waits for a warpgroup's matrix product
WARPGROUP = "gmma"


@dataclass(frozen=True)
class Reason:
    """`short` is what is waited for, for the end of a sentence; "" where nothing is: the warp is at
    work, or others are.
    """

    short: str
    words: str


# By ncu's names.
REASONS = {
    "long_scoreboard": Reason("device memory", "data is still on its way from device memory or L2"),
    "lg_throttle": Reason(
        "a full load queue", "too many loads and stores to device memory at once"
    ),
    "short_scoreboard": Reason(
        "shared memory", "a value from shared memory, or of exp and the like"
    ),
    "mio_throttle": Reason(
        "a full queue of shared memory", "too many accesses to shared memory, or exp, at once"
    ),
    "tex_throttle": Reason(
        "a full texture queue", "too many reads through the texture unit at once"
    ),
    "imc_miss": Reason("constant memory", "a constant that is not in its cache"),
    "barrier": Reason("a barrier", "other warps of the block have not come to the barrier yet"),
    "membar": Reason("a memory fence", "writes have to be seen by others first"),
    "math_pipe_throttle": Reason(
        "arithmetic units", "the arithmetic units are busy: much is computed"
    ),
    WARPGROUP: Reason("tensor cores", "the tensor cores have not finished a product of matrices"),
    "wait": Reason("its own results", "a few cycles until the instruction before is done"),
    "no_instruction": Reason("instructions", "the next instruction is not in the cache: long code"),
    "branch_resolving": Reason("a branch", "where a branch goes is not known yet"),
    "dispatch_stall": Reason("dispatch", "the unit that hands out instructions holds it back"),
    "drain": Reason("its last writes", "the kernel ends when all that was written is in memory"),
    "sleeping": Reason("a sleep", "the kernel told it to sleep"),
    "misc": Reason("something else", "for no reason that is counted"),
    "not_selected": Reason("", "ready; another warp was chosen: there are enough of them"),
    "selected": Reason("", "at work: this warp was chosen"),
}


@dataclass(frozen=True)
class Stall:
    """How much of a warp's time went by for a reason: a share, from 0 to 1."""

    reason: str
    share: float

    @property
    def what(self) -> Reason:
        """A reason that only a later version knows, as its file may have, has no words here."""
        return REASONS.get(self.reason) or Reason(self.reason.replace("_", " "), "")


def metric(reason: str) -> str:
    """Warps that were in that state, on average, while one instruction was issued."""
    return f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"


def metrics(capability: int) -> tuple[str, ...]:
    """Those that a GPU of this compute capability has."""
    without = () if capability == HOPPER else (WARPGROUP,)
    return tuple(metric(reason) for reason in REASONS if reason not in without)


def shares(counted: Mapping[str, float]) -> tuple[Stall, ...]:
    """Of the time of a warp, most first, from metrics that were counted; nothing if none was."""
    known = {reason: counted[metric(reason)] for reason in REASONS if metric(reason) in counted}
    total = sum(known.values())
    found = [Stall(reason, value / total) for reason, value in known.items() if value > 0.0]
    return tuple(sorted(found, key=lambda stall: -stall.share))


def worst(stalls: Sequence[Stall]) -> Stall | None:
    """What holds warps up most; None where nothing does."""
    return next((stall for stall in stalls if stall.what.short), None)
