"""What a failed proof means: evidence into words, the likeliest reason first, and a picture.

Nothing here is guessed if it can be computed. What memory shows comes first (two runs that differ,
writes outside, outputs never written), then the layer computed with one mistake after the other
(`mistakes`): if one of them gives the kernel's output, that is the mistake. Last, and always, where
the wrong outputs lie (`places`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tilewright.model.layers import dimensions
from tilewright.truth.diagnose import words
from tilewright.truth.diagnose.computed import computed, rounding, unwritten
from tilewright.truth.diagnose.memory import memory
from tilewright.truth.diagnose.picture import picture
from tilewright.truth.diagnose.places import places
from tilewright.truth.diagnose.seen import Seen
from tilewright.truth.diagnose.words import Diagnosis, Reason
from tilewright.truth.evidence import Evidence

# Places that have a cause of their own.
TELLING = {words.BORDER, words.LAST_TILE, words.TILE_EDGE, words.LATER_IMAGES}

__all__ = ["Diagnosis", "Reason", "diagnose", "words"]


def diagnose(evidence: Evidence) -> Diagnosis:
    """What the evidence of a fault says."""
    seen = Seen(evidence)
    some = seen.wrong.any() and not seen.wrong.all()
    drawn = picture(seen.wrong, seen.unwritten) if some else ()
    return Diagnosis(_headline(seen), _first(seen), tuple(_reasons(seen)), drawn)


def _reasons(seen: Seen) -> Iterator[Reason]:
    shown, where = list(memory(seen)), []
    if seen.wrong.any():
        where = list(places(seen.wrong, seen.evidence.stages[-1]))
    known = {reason.word for reason in shown}
    found = _computed(seen, known)
    # A mistake that gives all outputs is the cause of all else that is seen; one that gives the
    # wrong ones alone says less than a tile or a border that they lie in.
    telling = [reason for reason in where if reason.word in TELLING]
    whole = [reason for reason in found if reason.certain]
    consequences = {words.READS_OUTSIDE, words.RACE} if whole else set()
    yield from (reason for reason in shown if reason.word not in consequences)
    yield from whole
    yield from (reason for reason in shown if reason.word in consequences)
    yield from telling
    yield from (reason for reason in found if not reason.certain)
    if seen.wrong.any() and not (shown or found or telling):
        few_bits = rounding(seen) if {reason.word for reason in where} <= {words.EVERYWHERE} else []
        yield from few_bits
        if not few_bits:
            text = "no mistake that was tried gives these numbers"
            yield Reason(words.UNKNOWN, text, certain=False)
    yield from (reason for reason in where if reason.word not in TELLING)


def _computed(seen: Seen, known: set[str]) -> list[Reason]:
    """Numbers that change from run to run equal nothing that could be computed."""
    if not seen.numbers.any() or words.ACCUMULATES in known:
        return []
    return unwritten(seen) if words.RACE in known else computed(seen)


def _headline(seen: Seen) -> str:
    evidence = seen.evidence
    stages = evidence.stages
    kind = stages[0].layer.summary or stages[0].kind
    layer = (
        f"{stages[0].name} ({kind} on {dimensions(stages[0].input_shape)})"
        if len(stages) == 1
        else f"{stages[0].name} to {stages[-1].name}"
    )
    images = len(evidence.got)
    batch = "one image" if images == 1 else f"{images} images"
    count, per = int(np.count_nonzero(seen.wrong)), int(seen.wrong.any(seen.inner).sum())
    what = "are wrong" if evidence.image is not None else "differ between two runs"
    wrong = f"{count:,} of {seen.wrong.size:,} outputs {what}"
    if images > 1 and count:
        wrong += f", in {'all' if per == images else f'{per} of'} {images} images"
    if not count:
        wrong = "all outputs are right, but the kernel did what it must not"
    return f"{layer}, {evidence.inputs}, call {evidence.call} of {batch}: {wrong}"


def _first(seen: Seen) -> str:
    """The first wrong output, and what it should be."""
    if not seen.wrong.any():
        return ""
    evidence = seen.evidence
    place = tuple(int(i) for i in np.argwhere(seen.wrong)[0])
    names = ("image", "filter", "y", "x") if len(place) == 4 else ("image", "output")
    where = ", ".join(f"{name} {index}" for name, index in zip(names, place, strict=False))
    got, expected = evidence.got[place], evidence.expected[place]
    if seen.differs[place]:
        assert evidence.again is not None
        second = evidence.again.same[place]
        return (
            f"{where}: {got:.9g} the first time, {second:.9g} the second; expected {expected:.9g}"
        )
    bound = evidence.bound[place]
    within = "exactly" if bound == 0 else f"within {bound:.2g}"
    within = f" {within}" if np.isfinite(expected) and np.isfinite(bound) else ""
    return f"{where}: got {got:.9g}, expected {expected:.9g}{within}"
