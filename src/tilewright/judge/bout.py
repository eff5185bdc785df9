"""A convolution that is timed again and again, and never trusted.

Every call has other input. Every output is looked at: nothing of it may be left unwritten or be
the same as another call's, and one image, drawn anew, is computed again in float64 and compared
within the rounding that the arithmetic allows. All images are then added up with signs drawn after
the call: the convolution of that sum must be the sum of the outputs. A time below what the device
can do is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.judge.lanes import POISON, Lane, Values
from tilewright.model.network import Parameters, Stage
from tilewright.precision import Precision
from tilewright.profiling.result import Ceilings
from tilewright.truth import reference
from tilewright.truth.attempt import compare

# Of the time that arithmetic or memory take at least by measured ceilings, which may be too low.
MARGIN = 0.7
OF_FLOAT64 = 2.0**-40  # of a sum of outputs: more than adding them up in float64 loses


class Refused(TilewrightError):
    """Why a kernel has no place in a ranking."""


@dataclass(frozen=True)
class Floor:
    """Seconds that a call takes at least: warm, by its arithmetic; cold, also by its bytes."""

    warm: float
    cold: float

    def of(self, cold: bool) -> float:
        return self.cold if cold else self.warm


def floor(stage: Stage, images: int, found: Ceilings) -> Floor:
    arithmetic = images * stage.inside_flops / found.flops if found.flops else 0.0
    memory = least_bytes(stage, images) / found.bytes if found.bytes else 0.0
    return Floor(MARGIN * arithmetic, MARGIN * max(arithmetic, memory))


def least_bytes(stage: Stage, images: int) -> int:
    """Input, output and weights, each touched once."""
    weights = sum(int(np.prod(shape)) for shape in stage.parameter_shapes.values())
    values = int(np.prod(stage.input_shape)) + int(np.prod(stage.output_shape))
    return 4 * (images * values + weights)


class Bout:
    """One rung's convolution."""

    def __init__(
        self, lane: Lane, stage: Stage, parameters: Parameters, precision: Precision, images: int,
        found: Ceilings, again: Callable[[], Ceilings], generator: np.random.Generator,
    ) -> None:  # fmt: skip
        """`again` measures the ceilings once more, as a busy machine shows lower ones."""
        self.lane, self.stage, self.parameters, self.precision = lane, stage, parameters, precision
        self.images, self.again, self.generator = images, again, generator
        self.least = floor(stage, images, found)
        self.seen: set[str] = set()

    def turn(self) -> tuple[float, float, str]:
        """Seconds warm and cold, and the warm call's fingerprint."""
        cold, _ = self._call(cold=True)
        warm, fingerprint = self._call(cold=False)
        return warm, cold, fingerprint

    def _call(self, cold: bool) -> tuple[float, str]:
        x = self.generator.normal(size=(self.images, *self.stage.input_shape)).astype(np.float32)
        seconds, out = self.lane.call(x, cold)
        fingerprint = hashlib.blake2b(out.tobytes(), digest_size=16).hexdigest()
        self._check(x, out, fingerprint)
        if seconds < self.least.of(cold):
            self.least = floor(self.stage, self.images, self.again())
        if seconds < self.least.of(cold):
            raise Refused(
                f"{self.stage.name} took {1e3 * seconds:.3g} ms, less than the "
                f"{1e3 * self.least.of(cold):.3g} ms that the device needs for it in "
                f"{self.precision.name}"
            )
        return seconds, fingerprint

    def _check(self, x: Values, out: Values, fingerprint: str) -> None:
        if unwritten := int((out.view(np.uint32) == POISON).sum()):
            raise Refused(
                f"{self.stage.name}: {unwritten:,} of {out.size:,} outputs were not there when "
                "the clock stopped"
            )
        if fingerprint in self.seen:
            raise Refused(f"{self.stage.name}: other input gave the same output, bit for bit")
        self.seen.add(fingerprint)
        drawn = int(self.generator.integers(len(x)))
        given = x[drawn : drawn + 1]
        truth = reference.layer(self.stage, self.parameters, given, precision=self.precision)
        _, problem = compare(out[drawn : drawn + 1], truth)
        if problem is not None:
            raise Refused(f"{self.stage.name}, image {drawn} of a timed call: {problem}")
        self._check_sum(x, out)

    def _check_sum(self, x: Values, out: Values) -> None:
        """One image's work for all of them: what is wrong in any of them, and not small, shows."""
        images = len(x)
        signs = self.generator.choice((-1.0, 1.0), images)
        total = np.einsum("i,i...->...", signs, x, dtype=np.float64)
        size = np.abs(x).mean(axis=0, dtype=np.float64)
        given = np.stack([total, np.zeros_like(total), size])
        truth = reference.layer(self.stage, self.parameters, given, precision=self.precision)
        value, nothing, _ = truth.value  # of nothing the bias is left
        with np.errstate(invalid="ignore"):
            found = np.einsum("i,i...->...", signs, out, dtype=np.float64) - signs.sum() * nothing
            error = np.abs(found - (value - nothing))
            lost = OF_FLOAT64 * np.abs(out).sum(axis=0, dtype=np.float64)
            allowed = images * truth.bound[2] + lost
            wrong = ~((error <= allowed) & np.isfinite(found))
        if wrong.any():
            place = tuple(int(index) for index in np.argwhere(wrong)[0])
            raise Refused(
                f"{self.stage.name}: of a timed call's {images} images some are wrong: added up, "
                f"output{list(place)} is off by {error[place]:.2g}, and rounding allows "
                f"{allowed[place]:.2g}"
            )
