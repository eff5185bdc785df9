"""What a network under construction is made of: parts, and what files see of their outputs.

A part is a layer, or one of a few helpers that no network has: `Affine` (a batch normalisation, a
constant added or multiplied), `Pad`, `Erf`, `Exp` and `Above`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.model.layers import Layer, Shape
from tilewright.model.layers.sizes import Sides, picture

Array = NDArray[Any]
Wide = NDArray[np.float64]
# Of a free batch, in shapes that a graph computes: no other size is like it.
FREE = 999_983
# How far a constant may be from the one that a pattern needs, which files round to float32.
CLOSE = 1e-6


def place_of(axis: int, rank: int) -> int:
    """Which of so many axes it is; those below 0 count from the end."""
    if not -rank <= axis < rank:
        raise TilewrightError(f"names axis {axis} of {rank}")
    return axis % rank


def listed(sizes: Sequence[int]) -> str:
    """A shape that a graph computes, for errors: a free batch has no number."""
    return f"[{', '.join(_listed(size) for size in sizes)}]"


def _listed(size: int) -> str:
    times, rest = divmod(size, FREE)
    if rest or not times:
        return str(size)
    return "batch" if times == 1 else f"{times} batch"


@dataclass(frozen=True)
class Value:
    """The output of a part, as the file sees it.

    `last`: a picture with its channels last. `rows`: features that were such a picture, whose order
    is y, x, channel; its shape in our order. `ones`: how many axes of 1 a row has behind it, or
    before it where channels are `last`. `expanded`: the file's shape, if it repeats the values
    along axes where they have one place, as only a product understands it. `split`: into how many
    groups of how many the channels are cut, as two axes. `flat`: height and width are one axis.
    """

    part: int
    last: bool = False
    rows: Shape | None = None
    ones: int = 0
    expanded: Shape | None = None
    split: tuple[int, int] | None = None
    flat: bool = False


@dataclass(frozen=True, eq=False)
class Affine(Layer):
    """Every channel times a number, and another added; `norm`: a batch normalisation."""

    kind = "affine"
    scale: Wide
    shift: Wide
    norm: bool = False

    @property
    def nothing(self) -> bool:
        return bool((np.abs(self.scale - 1) <= CLOSE).all() and not self.shift.any())

    def then(self, other: Affine) -> Affine:
        """This one and another behind it."""
        shift = self.shift * other.scale + other.shift
        return Affine(self.scale * other.scale, shift, self.norm or other.norm)

    @property
    def line(self) -> tuple[float, float] | None:
        """Scale and shift, if they are the same for all channels."""
        scale, shift = float(self.scale[0]), float(self.shift[0])
        alike = (self.scale == scale).all() and (self.shift == shift).all()
        return (scale, shift) if alike else None


@dataclass(frozen=True)
class Pad(Layer):
    """Zeros around a picture, or what is nothing to the largest of a window: minus infinity, or
    pixels of the edge, which is in every window that has a part of them."""

    kind = "pad"
    padding: Sides
    fill: Literal["zeros", "minus infinity", "the edge"] = "zeros"

    def output_shape(self, shape: Shape) -> Shape:
        above, left, below, right = self.padding
        channels, height, width = picture(shape)
        return channels, height + above + below, width + left + right


@dataclass(frozen=True)
class Erf(Layer):
    """The error function, of which only GELU is made here."""

    kind = "erf"


@dataclass(frozen=True)
class Exp(Layer):
    """The power of e, or 1 less, of which only a softplus or an ELU is made here."""

    kind = "exp"
    less_one: bool = False


@dataclass(frozen=True)
class Above(Layer):
    """Whether values are larger than a bound, by which only activations choose here."""

    kind = "comparison"
    bound: float


@dataclass(frozen=True)
class Part:
    """`name` is the file's, for what is said of it."""

    name: str
    layer: Layer
    sources: tuple[int, ...]
    shape: Shape
    weights: Mapping[str, Array] = field(default_factory=dict)
