"""Rows and columns of a picture, chosen by their numbers: a crop, a nearest-neighbour upsampling, a
mirrored or repeated edge, a picture turned round, are all of them the same layer.

Every output is one input as it was; there is no arithmetic, and nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from tilewright.errors import TilewrightError
from tilewright.model.layers.base import Draw, Example, Planar, Weights
from tilewright.model.layers.forms import EVERY
from tilewright.model.layers.onnx_node import OnnxNode
from tilewright.model.layers.rounding import Array, Truth
from tilewright.model.layers.sizes import LARGEST, Shape, picture, whole
from tilewright.precision import Precision

if TYPE_CHECKING:
    from torch import Tensor

Places = tuple[int, ...]
LARGEST_INT = 2**31 - 1  # in C


@dataclass(frozen=True, init=False)
class Take(Planar):
    """Row `rows[y]` and column `columns[x]` of every channel, for every y and x there is."""

    kind = type = "take"
    words = "some rows and columns, in any order, as often as wanted"
    forms = EVERY
    passes_on = True
    rows: Places
    columns: Places

    def __init__(self, rows: Sequence[int], columns: Sequence[int]) -> None:
        object.__setattr__(self, "rows", _places("rows", rows))
        object.__setattr__(self, "columns", _places("columns", columns))

    def output_shape(self, shape: Shape) -> Shape:
        channels, *sizes = picture(shape)
        for what, places, size in zip(
            ("row", "column"), (self.rows, self.columns), sizes, strict=True
        ):
            if max(places) >= size:
                raise TilewrightError(f"takes {what} {max(places)} of {size}, which count from 0")
        return channels, len(self.rows), len(self.columns)

    @property
    def summary(self) -> str:
        return f"rows {_said(self.rows)} columns {_said(self.columns)}"

    def truth(self, x: Array, error: Array, weights: Weights, precision: Precision) -> Truth:
        return Truth(self.of(x), self.of(error))

    def of(self, x: Array) -> Array:
        """The chosen places of a batch."""
        return x[:, :, self.rows][:, :, :, self.columns]

    def torch(self, *parameters: Tensor) -> Callable[[Tensor], Tensor]:
        import torch

        @cache
        def places(device: object) -> list[Tensor]:
            """Once on every device: a captured graph copies nothing."""
            return [torch.tensor(each, device=device) for each in (self.rows, self.columns)]

        def take(x: Tensor) -> Tensor:
            rows, columns = places(x.device)
            return x.index_select(2, rows).index_select(3, columns)

        return take

    def onnx(self) -> tuple[OnnxNode, ...]:
        return (
            OnnxNode("Gather", {"axis": 2}, whole=self.rows),
            OnnxNode("Gather", {"axis": 3}, whole=self.columns),
        )

    @classmethod
    def examples(cls) -> list[Example]:
        return [
            ((1, 1, 1), cls([0], [0])),
            ((3, 5, 7), cls(range(1, 4), range(2, 7))),
            ((17, 4, 3), cls([0, 0, 1, 1, 2, 2, 3, 3], [0, 0, 0, 1, 1, 1, 2, 2, 2])),
            ((4, 3, 4), cls([2, 1, 0, 1, 2, 1, 0], [3, 0, 1, 2, 3, 0])),
            ((2, 3, 35), cls([0, 2], range(34, -1, -1))),
            ((33, 7, 5), cls([0, 0, 1, 3, 3, 4, 6], [4])),
        ]

    @classmethod
    def drawn(cls, draw: Draw) -> list[Example]:
        height, width = draw(1, 9), draw(1, 9)
        rows = [draw(0, height - 1) for _ in range(draw(1, 12))]
        columns = [draw(0, width - 1) for _ in range(draw(1, 12))]
        return [((draw(1, 19), height, width), cls(rows, columns))]


def place_of(places: Places, name: str) -> str:
    """The number that a place is taken from, as an expression in C of its own number: a quotient
    where there is one that gives them all, else pieces that go up or down in steps."""
    count, most = len(places), max(places) + 1
    for numerator, shift, divisor in ((1, 0, 1), (most, 0, count), (2 * most, most, 2 * count)):
        if all((numerator * at + shift) // divisor == each for at, each in enumerate(places)):
            long = "L" if numerator * count + shift > LARGEST_INT else ""
            return f"({numerator}{long} * ({name}) + {shift}) / {divisor}" if divisor > 1 else name
    *first, last = _pieces(places)
    return "".join(f"({name}) < {end} ? {_line(*line, name)} : " for end, line in first) + _line(
        *last[1], name
    )


def _pieces(places: Places) -> list[tuple[int, tuple[int, int]]]:
    """Where each piece ends, and by which start and step its numbers follow from their places."""
    found: list[tuple[int, tuple[int, int]]] = []
    begin = 0
    while begin < len(places):
        step = places[begin + 1] - places[begin] if begin + 1 < len(places) else 0
        end = begin + 1
        while end < len(places) and places[end] - places[end - 1] == step:
            end += 1
        found.append((end, (places[begin] - step * begin, step)))
        begin = end
    return found


def _line(start: int, step: int, name: str) -> str:
    return f"{start} + {step} * ({name})" if step else str(start)


def _places(what: str, given: object) -> Places:
    if not isinstance(given, list | tuple | range) or not 0 < len(given) <= LARGEST:
        raise TilewrightError(f"{what} must be a list of numbers, not {given!r:.40}")
    return tuple(whole(f"each of {what}", each, minimum=0) for each in given)


def _said(places: Places) -> str:
    """In a few characters: 2-13, 0-7 twice, 12 of 0-9."""
    low, high, count = min(places), max(places), len(places)
    if places == tuple(range(low, high + 1)):
        return f"{low}-{high}" if count > 1 else str(low)
    times, rest = divmod(count, high - low + 1)
    if not rest and places == tuple(low + at // times for at in range(count)):
        return f"{low}-{high} x{times}"
    return f"{count} of {low}-{high}"
