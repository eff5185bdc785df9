"""Which computed mistake gives the numbers that the kernel gave."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tilewright.precision import UNIT
from tilewright.truth.diagnose import words
from tilewright.truth.diagnose.case import Case
from tilewright.truth.diagnose.mistakes import Mistake, mistakes
from tilewright.truth.diagnose.seen import Mask, Seen
from tilewright.truth.diagnose.words import Reason

Array = NDArray[np.float64]
LOOKED_AT = 4  # images of a batch
SLACK = 2.0**-21  # of the products' sizes: more than float32 sums of thousands lose
LARGEST_ROUNDING = 2.0**-6  # errors beyond this share of the products' sizes are no rounding
SMALL_ROUNDING = 2.0**-16  # errors below are those of float32, in another algorithm
FEW = 3  # places that a mistake could explain by chance


def computed(seen: Seen) -> list[Reason]:
    """The mistakes that explain every wrong number, those that explain all outputs first."""
    reasons = list(_mixed_images(seen))
    layer = seen.convolution
    if layer is None:
        return reasons
    found = _Compared(seen, layer_case(seen))
    reasons += _mixed_filters(found)
    everywhere, only = [], []
    for mistake in mistakes(found.case):
        fit = found.fit(mistake.output)
        if fit == "everywhere":
            everywhere.append(_reason(mistake, True))
            break
        if fit == "wrong":
            only.append(_reason(mistake, False))
    reasons += everywhere or only[:2]
    return reasons or _biases(found) or _factor(found) or _whole(found) or unwritten(seen)


def _reason(mistake: Mistake, everywhere: bool) -> Reason:
    where = "everywhere" if everywhere else "wherever it is wrong"
    text = f"your output equals what comes out {mistake.text}, {where}"
    return Reason(mistake.word, text, certain=everywhere)


def layer_case(seen: Seen) -> Case:
    """Some images with the first wrong one among them."""
    evidence, stage = seen.evidence, seen.evidence.stages[-1]
    part = looked_at(seen)
    parameters = evidence.parameters
    weight = parameters[f"{stage.name}.weight"].astype(np.float64)
    bias = parameters.get(f"{stage.name}.bias")
    assert seen.convolution is not None
    return Case(
        seen.pictures[part],
        weight,
        np.zeros(len(weight)) if bias is None else bias.astype(np.float64),
        seen.convolution,
    )


def looked_at(seen: Seen) -> slice:
    first = int(seen.numbers.any(seen.inner).argmax())
    start = max(0, first - LOOKED_AT + 1) if first else 0
    return slice(start, start + LOOKED_AT)


class _Compared:
    """What the kernel gave for the images of a case, and how near to it a mistake comes."""

    def __init__(self, seen: Seen, case: Case) -> None:
        self.case = case
        part = looked_at(seen)
        self.got = seen.evidence.got[part].astype(np.float64)
        self.expected, self.bound = seen.evidence.expected[part], seen.evidence.bound[part]
        self.numbers: Mask = seen.numbers[part]
        self.sane: Mask = ~seen.spoiled[part]
        with np.errstate(invalid="ignore", over="ignore"):
            self.tolerance: Array = self.bound + SLACK * case.magnitude

    @property
    def scale(self) -> Array:
        """The largest sum of products' sizes in each image: a fast algorithm errs by shares of
        its neighbours' sums, too."""
        largest: Array = self.case.magnitude.max((1, 2, 3), keepdims=True)
        return np.broadcast_to(largest, self.got.shape)

    def fit(self, output: Array) -> str | None:
        """Whether a mistake explains all outputs, all that are wrong, or not even these."""
        with np.errstate(invalid="ignore"):
            near = np.abs(self.got - output) <= self.tolerance
            tells = np.abs(output - self.expected) > self.tolerance
        known = np.isfinite(output) & np.isfinite(self.got)
        known[~self.sane] = False
        claimed = known & self.numbers
        count = np.count_nonzero(claimed)
        # What is not known (memory that was not seen) must not be most of it.
        if not count or 2 * count < np.count_nonzero(self.numbers):
            return None
        if not near[claimed].all() or not tells[claimed].all():
            return None
        if near[known].all():
            return "everywhere"
        return "wrong" if count > FEW else None


def _mixed_images(seen: Seen) -> Iterator[Reason]:
    """Right results, but of another image."""
    evidence = seen.evidence
    images = len(evidence.got)
    whole = seen.wrong.any(seen.inner) & np.isfinite(evidence.got).all(seen.inner)
    if images < 2 or not whole.any() or evidence.got[0].size < FEW:
        return
    others: dict[int, int] = {}
    for image in np.flatnonzero(whole)[:32]:
        with np.errstate(invalid="ignore"):
            same = (np.abs(evidence.got[image] - evidence.expected) <= evidence.bound).all(
                seen.inner
            )
        if not same.any():
            return
        others[int(image)] = int(same.argmax())
    if set(others.values()) == {0}:
        text = "every image comes out as the first one of the batch"
    else:
        one, other = next(iter(others.items()))
        text = f"image {one} comes out as image {other} should, and others likewise"
    yield Reason(words.IMAGES, text)


def _mixed_filters(found: _Compared) -> Iterator[Reason]:
    """Right planes, but of another filter."""
    image = int(found.numbers.any((1, 2, 3)).argmax())
    got, expected = found.got[image], found.expected[image]
    wrong = np.flatnonzero(found.numbers[image].any((1, 2)))
    if got[0].size <= FEW or len(got) < 2:
        return
    others: dict[int, int] = {}
    for row in wrong:
        with np.errstate(invalid="ignore"):
            same = (np.abs(got[row] - expected) <= found.tolerance[image]).all((1, 2))
        if not same.any() or same[row]:
            return
        others[int(row)] = int(same.argmax())
    one, other = next(iter(others.items()))
    if len(set(others.values())) == 1 and len(others) > 1:
        text = f"all wrong filters hold the output of filter {other}"
    else:
        text = f"filter {one} holds the output of filter {other}"
        text += ", and others likewise" if len(others) > 1 else ""
    yield Reason(words.FILTERS, text)


def _biases(found: _Compared) -> list[Reason]:
    """Each wrong filter is off by a constant: the difference of two biases?"""
    bias = found.case.bias
    image = int(found.numbers.any((1, 2, 3)).argmax())
    off = found.got[image] - found.expected[image]
    tolerance = found.tolerance[image].max((1, 2))
    for row in np.flatnonzero(found.numbers[image].any((1, 2))):
        if np.ptp(off[row]) > tolerance[row] or abs(off[row].mean()) <= tolerance[row]:
            return []
        if not (np.abs(off[row].mean() + bias[row] - bias) <= tolerance[row]).any():
            return []
    text = "each wrong filter is off by the difference of its bias and another filter's"
    return [Reason(words.BIAS_OTHER, text)]


def _factor(found: _Compared) -> list[Reason]:
    """All outputs, or all sums before the bias, a constant times what they should be."""
    for column, what in ((0.0, "it should be"), (found.case.column, "it should be, but for bias")):
        sums, got = found.case.right - column, found.got - column
        large = found.numbers & (np.abs(sums) > 0.1 * found.scale)
        if not large.any():
            continue
        factor = float(np.median(got[large] / sums[large]))
        near = np.abs(got - factor * sums) <= found.tolerance
        if near[np.isfinite(found.got) & found.sane[:, None, None, None]].all():
            return [Reason(words.FACTOR, f"your output is {factor:.6g} times what {what}")]
    return []


def _whole(found: _Compared) -> list[Reason]:
    """Whole numbers come out where there should be none."""
    wrong, expected = found.got[found.numbers], found.expected[found.numbers]
    if (wrong != np.rint(wrong)).any() or np.mean(expected != np.rint(expected)) < 0.5:
        return []
    text = "every wrong output is a whole number, and should be none: is the sum kept in an int?"
    return [Reason(words.PRECISION, text)]


def unwritten(seen: Seen) -> list[Reason]:
    """Whole numbers went in, and something else came out: it was there before."""
    if seen.convolution is None:
        return []
    found = _Compared(seen, layer_case(seen))
    case = found.case
    given = (case.x[found.sane], case.weight, case.bias)
    if not all((each == np.rint(each)).all() for each in given):
        return []
    wrong, off = found.got[found.numbers], np.abs(found.got - found.expected)[found.numbers]
    # Roundings of large numbers have fractions, too.
    large = off > SMALL_ROUNDING * found.scale[found.numbers]
    count = np.count_nonzero((wrong != np.rint(wrong)) & large)
    if not count:
        return []
    text = (
        f"{count:,} outputs are no whole numbers, although inputs, weights and bias are: memory "
        "was read that nothing was written to (a shared array, a register, scratch)"
    )
    return [Reason(words.READS_UNWRITTEN, text)]


def rounding(seen: Seen) -> list[Reason]:
    """Small errors everywhere: fewer bits than claimed."""
    if seen.convolution is None:
        return []
    found = _Compared(seen, layer_case(seen))
    share = np.count_nonzero(found.numbers) / found.numbers.size
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.abs(found.got - found.expected) / found.scale
    error = error[found.numbers & (found.scale > 0)]
    if not error.size or error.max() > LARGEST_ROUNDING:
        return []
    text = (
        f"{share:.0%} of outputs are off by up to 2^{np.log2(error.max()):.0f} of the largest sum "
        f"of products' sizes; float32 rounds to 2^{np.log2(UNIT):.0f}"
    )
    for bits, name in ((11, "fp16"), (8, "bf16")):
        cut = 24 - bits
        raw = found.got[found.numbers].astype(np.float32).view(np.uint32)
        if not (raw & ((1 << cut) - 1)).any():
            text += f", and every wrong one is a number of {bits} bits: as if stored in {name}"
            break
    else:
        text += (
            ": as if sums or products were kept in fewer bits (fp16, bf16, TF32)"
            if error.max() > SMALL_ROUNDING
            else ": a fast algorithm (Winograd, FFT) is a class of its own, which the header claims"
        )
    return [Reason(words.PRECISION, text)]
