"""Evidence, looked at: which outputs are wrong, which were never written, which are numbers."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tilewright.model.layers import Convolution, Layer, Pixels
from tilewright.truth.evidence import PREFILL, Evidence

Mask = NDArray[np.bool_]


class Seen:
    """Masks over the outputs of the whole batch."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence

    @property
    def layer(self) -> Layer:
        return self.evidence.stages[-1].layer

    @property
    def convolution(self) -> Convolution | None:
        """The layer, if it is a convolution, alone or together with the pixels before it."""
        alone = all(isinstance(each.layer, Pixels) for each in self.evidence.stages[:-1])
        return self.layer if alone and isinstance(self.layer, Convolution) else None

    @cached_property
    def pictures(self) -> NDArray[np.float64]:
        """What the layer is computed from: bytes are pixels, which become numbers first."""
        given = self.evidence.given
        numbers = given.astype(np.float64)
        for stage in self.evidence.stages[:-1] if given.dtype == np.uint8 else ():
            numbers = stage.layer.truth(numbers, np.zeros(()), {}, self.evidence.precision).value
        return numbers

    @property
    def inner(self) -> tuple[int, ...]:
        """All axes but that of images."""
        return tuple(range(1, self.evidence.got.ndim))

    @cached_property
    def spoiled(self) -> Mask:
        """Images that hold NaN or infinity on purpose."""
        given = self.evidence.given
        clean = np.isfinite(given).reshape(len(given), -1).all(1)
        return np.asarray(~clean & self.evidence.arrival)

    @cached_property
    def wrong(self) -> Mask:
        evidence = self.evidence
        with np.errstate(invalid="ignore"):
            wrong = ~(np.abs(evidence.got - evidence.expected) <= evidence.bound)
        swallowed = np.isfinite(evidence.got) & ~np.isfinite(evidence.expected)
        wrong[self.spoiled] = swallowed[self.spoiled]
        return wrong if wrong.any() else self.differs

    @cached_property
    def differs(self) -> Mask:
        """Not the same in a second run."""
        got, again = self.evidence.got, self.evidence.again
        if again is None:
            return np.zeros(got.shape, bool)
        equal = (got == again.same) | (np.isnan(got) & np.isnan(again.same))
        different: Mask = ~equal
        return different

    @cached_property
    def unwritten(self) -> Mask:
        """Outputs that held what was there before: PREFILL the last time, and NaN the first."""
        again = self.evidence.again
        if again is None:
            return np.zeros(self.wrong.shape, bool)
        none: Mask = (again.filled == PREFILL) & np.isnan(self.evidence.got)
        return none

    @cached_property
    def numbers(self) -> Mask:
        """Wrong outputs that are numbers, of images that hold nothing but numbers."""
        numbers: Mask = self.wrong & np.isfinite(self.evidence.got)
        numbers[self.spoiled] = False
        return numbers
