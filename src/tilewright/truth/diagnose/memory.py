"""What memory shows: runs that differ, writes outside, outputs never written, NaN from outside."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tilewright.truth.diagnose import words
from tilewright.truth.diagnose.seen import Mask, Seen
from tilewright.truth.diagnose.words import Reason
from tilewright.truth.evidence import (
    INPUT_POISON,
    OUTPUT_POISON,
    PARAMETER_POISON,
    PREFILL,
    SCRATCH_POISON,
    SHARED_POISON,
    Damage,
)

# Whose NaN it is, by its bits: x86 hands them on through sums, CUDA makes a NaN of its own.
SOURCES = {
    INPUT_POISON: "before or behind its input",
    PARAMETER_POISON: "before or behind its weights or bias",
    OUTPUT_POISON: "its output before it was written",
    SCRATCH_POISON: "scratch that nothing wrote in this call, or outside it",
    SHARED_POISON: "shared memory that nothing wrote",
}
UNWRITTEN = (SCRATCH_POISON, OUTPUT_POISON, SHARED_POISON)


def memory(seen: Seen) -> Iterator[Reason]:
    """Everything of this kind, with what was seen of it."""
    for damage in seen.evidence.damage:
        yield _damaged(damage)
    yield from _race(seen)
    yield from _not_numbers(seen)
    yield from _infinite(seen)
    yield from _swallowed(seen)
    yield from _earlier(seen)


def _race(seen: Seen) -> Iterator[Reason]:
    again = seen.evidence.again
    if not seen.differs.any() or again is None:
        return
    count = np.count_nonzero(seen.differs)
    text = (
        f"{count:,} outputs differ between two runs on the same input: threads that do not wait "
        "for each other (a barrier?), that write to the same place, or memory read before anything "
        "was written to it"
    )
    yield Reason(words.RACE, text)


def _damaged(damage: Damage) -> Reason:
    where = [
        f"{count:,} element{'s' if count > 1 else ''} {place}"
        for count, place in (
            (damage.before, "before it"), (damage.inside, "inside it"), (damage.after, "behind it")
        )
        if count
    ]  # fmt: skip
    found = f"{' and '.join(where)} changed, the first {damage.first} from its start"
    if damage.before or damage.after:
        return Reason(words.OUTSIDE, f"writes outside its {damage.buffer}: {found}")
    if damage.buffer == "output":
        return Reason(words.OUTSIDE, f"writes to images that are not in the batch: {found}")
    word = words.CHANGES_INPUT if damage.buffer == "input" else words.CHANGES_PARAMETERS
    return Reason(word, f"changes its {damage.buffer}, which others still need: {found}")


def _not_numbers(seen: Seen) -> Iterator[Reason]:
    """NaN where a number should be: never written, added to, or read from where there is none."""
    evidence = seen.evidence
    made = np.isnan(evidence.got) & np.isfinite(evidence.expected)
    if not made.any() or evidence.again is None:
        return
    filled = evidence.again.filled.astype(np.float64)
    with np.errstate(invalid="ignore"):
        size = np.abs(evidence.expected) + float(PREFILL)
        added = np.abs(filled - evidence.expected - float(PREFILL))
        onto = made & (added <= evidence.bound + 2.0**-20 * size) & ~seen.unwritten
    left = made & ~onto & ~seen.unwritten
    if onto.any():
        text = (
            f"adds to what is in its output already: where the output holds {PREFILL:.6g} first, "
            f"{np.count_nonzero(onto):,} results are larger by that much"
        )
        yield Reason(words.ACCUMULATES, text)
    if seen.unwritten.any():
        yield Reason(words.NEVER_WRITTEN, _unwritten(seen.unwritten & made))
    if left.any():
        yield _from_outside(seen, left)


def _infinite(seen: Seen) -> Iterator[Reason]:
    made = np.isinf(seen.evidence.got) & np.isfinite(seen.evidence.expected)
    if made.any():
        text = (
            f"{np.count_nonzero(made):,} outputs are infinite: something is divided by zero, or "
            "leaves the range of its type (fp16 ends at 65,504)"
        )
        yield Reason(words.NOT_A_NUMBER, text)


def _unwritten(unwritten: Mask) -> str:
    count = np.count_nonzero(unwritten)
    if unwritten.all():
        return "no output is ever written"
    return f"{count:,} outputs are never written: they hold what was there before"


def _from_outside(seen: Seen, left: Mask) -> Reason:
    """By the bits of the NaN, if they have come through; all margins are NaN either way."""
    values = np.ascontiguousarray(seen.evidence.got)[left]
    bits, counts = np.unique(values.view(np.uint32) & 0x7FFFFFFF, return_counts=True)
    source = SOURCES.get(int(bits[counts.argmax()]))
    count = np.count_nonzero(left)
    word = words.READS_OUTSIDE
    if source is None:
        return Reason(
            words.NOT_A_NUMBER,
            f"{count:,} outputs are NaN: all memory around buffers holds NaN, and so does what was "
            "never written; either is read, or a NaN is made (0/0, infinity less infinity)",
        )
    if int(bits[counts.argmax()]) in UNWRITTEN:
        word = words.READS_UNWRITTEN
    return Reason(word, f"{count:,} outputs are NaN that was read from {source}")


def _swallowed(seen: Seen) -> Iterator[Reason]:
    lost = seen.wrong & seen.spoiled.reshape(-1, *[1] * len(seen.inner))
    if lost.any():
        text = (
            f"{np.count_nonzero(lost):,} outputs are numbers although NaN or infinity is among the "
            "values they are made of: fmax, comparisons and products left out lose them"
        )
        yield Reason(words.SWALLOWS, text)


def _earlier(seen: Seen) -> Iterator[Reason]:
    """The output of the call before, where it is wrong now."""
    earlier, numbers = seen.evidence.earlier, seen.numbers
    if earlier is None or not numbers.any():
        return
    both = min(len(earlier), len(numbers))
    now = numbers.copy()
    now[both:] = False
    if (now == numbers).all() and (seen.evidence.got[:both] == earlier[:both])[now[:both]].all():
        yield Reason(words.STALE, "the wrong outputs are those of the call before, bit for bit")
