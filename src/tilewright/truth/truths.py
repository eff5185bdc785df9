"""What each step of a trial's network should make of each image, and which outputs were right.

Images go through many calls, and most of what comes out has been seen before to the last bit. So an
image is known by its number, and what a step made of it by a number of its own: the truth is
computed once for what a step was given, and an output is compared with it once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tilewright.plan import taken
from tilewright.rungs.rung import Rung
from tilewright.truth import reference
from tilewright.truth.trials import Inputs, Trial

Values = NDArray[np.float32]
Bits = NDArray[np.uint32]
# Which image it is, or which of a step's outputs: equal numbers, equal bits.
Number = int
# Right outputs of a step for the same inputs that are remembered: more than a rung has ways. Sums
# that are added atomically differ each time.
REMEMBERED = 4


@dataclass
class Known:
    """The truth of one image at one step, whether its inputs are finite, and outputs found right
    with their numbers."""

    truth: reference.Truth
    finite: bool
    right: list[tuple[Number, Bits]] = field(default_factory=list)

    def seen(self, output: Values) -> Number | None:
        """The number of an output that was found right, to the last bit."""
        bits = output.view(np.uint32)
        for number, before in self.right:
            if before.shape == bits.shape and bool((before == bits).all()):
                return number
        return None


class Truths:
    """Of one trial, for any number of attempts at it with the same steps."""

    def __init__(self, trial: Trial, rung: Rung) -> None:
        self.network, self.precision = trial.network, rung.precision
        self.steps = [list(part) for part in rung.cut(trial.network)]
        self.known: list[dict[tuple[Number, ...], Known]] = [{} for _ in self.steps]
        self.numbers = itertools.count(len(trial.images))  # the images have those before

    def of(
        self, index: int, numbers: Sequence[tuple[Number, ...]], given: Sequence[Inputs]
    ) -> list[Known]:
        """Of a step for some images, one by one, by the numbers of what each is given."""
        known = self.known[index]
        fresh = {key: place for place, key in enumerate(numbers) if key not in known}
        finite = {
            key: all(bool(np.isfinite(part[place]).all()) for part in given)
            for key, place in fresh.items()
        }
        for alike in (True, False):  # NaN would leave the bound of no other image as it is
            places = {key: place for key, place in fresh.items() if finite[key] == alike}
            if places:
                chosen = list(places.values())
                truths = self._chain(index, [part[chosen] for part in given])
                for key, truth in zip(places, truths, strict=True):
                    known[key] = Known(truth, alike)
        return [known[key] for key in numbers]

    def found_right(self, known: Known, output: Values) -> Number:
        """Remember an output; its number."""
        number = next(self.numbers)
        if len(known.right) < REMEMBERED:
            known.right.append((number, output.view(np.uint32).copy()))
        return number

    def _chain(self, index: int, given: list[Inputs]) -> Iterator[reference.Truth]:
        stages, parameters = self.steps[index], self.network.parameters
        places = {stage.name: stage.index for stage in self.network.stages}
        names = taken(self.network, stages)
        x: Inputs | dict[int, Inputs] = given[0]
        if names:  # not the pixels
            x = {places[name]: part for name, part in zip(names, given, strict=True)}
        with np.errstate(invalid="ignore", over="ignore"):
            chain = reference.chain(stages, parameters, x, self.precision)
        for value, bound in zip(chain[-1].value, chain[-1].bound, strict=True):
            yield reference.Truth(value, bound)
