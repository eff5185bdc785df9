"""A network under construction from a file of somebody else's, by the words that formats share.

ONNX and PyTorch name the same operations differently; both say them to a `Draft`, which keeps them
as parts in the order of the file. What of these no network has is folded into the layers around
when the draft is finished (`tilewright.model.formats.folding`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.model.formats.parts import Value, place_of
from tilewright.model.formats.transposed import Transposed
from tilewright.model.formats.values import Values
from tilewright.model.layers import AveragePool, Flatten, MaxPool, Shape, Softmax, dimensions

How = Literal["average", "largest", "sum"]


class Draft(Values, Transposed):
    """All that formats share: sums, values and places, and here windows and shapes."""

    def max_pool(self, name: str, x: Value, layer: MaxPool) -> Value:
        return self.add(name, layer, self.picture(x))

    def average_pool(self, name: str, x: Value, layer: AveragePool) -> Value:
        return self.add(name, layer, self.picture(x))

    def over_picture(self, name: str, x: Value, how: How = "average", keep: bool = True) -> Value:
        """The average, the largest or the sum of every channel; without `keep` as a row."""
        return self._over(name, x, (True, True), how, keep)

    def _over(self, name: str, x: Value, over: tuple[bool, bool], how: How, keep: bool) -> Value:
        """The same over height, width or both."""
        _, *sizes = self.parts[x.part].shape
        if len(sizes) != 2:
            raise TilewrightError("needs a picture")
        down, across = (size if each else 1 for size, each in zip(sizes, over, strict=True))
        pool = MaxPool if how == "largest" else AveragePool
        made = replace(self.add(name, pool((down, across)), x), last=x.last)
        if how == "sum":
            made = self.affine(name, made, np.array(float(down * across)), np.array(0.0))
        return made if keep else self.add(name, Flatten(), replace(made, last=False))

    def reduce(
        self, name: str, x: Value, axes: tuple[int, ...], keep: bool, how: How = "average"
    ) -> Value:
        """Averages over axes, which count the batch."""
        rank = len(self.shape(x)) + 1
        places = {place_of(axis, rank) for axis in axes}
        down, across = (1, 2) if x.last else (2, 3)
        over = (down in places, across in places)
        if rank == 4 and places <= {down, across} and any(over):
            made = self._over(name, x, over, how, keep or not all(over))
            return made if keep or all(over) else self._flat(made)
        if x.flat and places == {2}:
            row = self._over(name, replace(x, flat=False), (True, True), how, keep=False)
            return replace(row, ones=int(keep))
        channels = self.parts[x.part].shape[0]
        if rank == 4 and keep and places == {3 if x.last else 1} and how != "largest":
            weight = np.full((1, channels), 1 / channels if how == "average" else 1.0)
            return replace(self._by_pixel(name, replace(x, last=False), weight, None), last=x.last)
        raise TilewrightError(f"reduces axes {list(axes)}; height and width are understood")

    def _flat(self, x: Value) -> Value:
        if x.last:
            raise TilewrightError("reduces one of two axes of a picture with channels last")
        return replace(x, flat=True)

    def softmax(self, name: str, x: Value, axis: int) -> Value:
        shape, features = self.shape(x), self.parts[x.part].shape
        place = place_of(axis, len(shape) + 1)
        if len(shape) == 3 and features[1:] in ((), (1, 1)) and place == (3 if x.last else 1):
            # Of one pixel's channels, or of a row with axes behind it.
            row = self.add(name, Flatten(), x) if len(features) == 3 else x
            return replace(self.add(name, Softmax(), row), last=x.last, ones=2)
        if len(shape) != 1 or place != 1 or x.rows:
            raise TilewrightError(
                f"softmax along axis {axis} of {dimensions(shape)}; a row of features is understood"
            )
        return self.add(name, Softmax(), x)

    def transpose(self, name: str, x: Value, order: tuple[int, ...]) -> Value:
        """`order` counts the batch."""
        if order == tuple(range(len(self.shape(x)) + 1)):
            return x
        if x.expanded:
            raise TilewrightError("turns axes of values that were repeated")
        if x.split and order == (0, 2, 1, 3, 4):
            groups, each = x.split
            picked = self.shuffle(name, replace(x, split=None), groups)
            return replace(picked, split=(each, groups))
        if len(order) == 4 and order == ((0, 3, 1, 2) if x.last else (0, 2, 3, 1)):
            return replace(x, last=not x.last)
        raise TilewrightError(f"reorders axes as {list(order)}; channels first or last, else none")

    def reshape(self, name: str, x: Value, shape: Shape) -> Value:
        """To a row, or back to the picture that a row was."""
        if shape == self.shape(x):
            return x
        features = self.parts[x.part].shape
        if x.flat:
            return self.reshape(name, replace(x, flat=False), shape)
        if shape == features and x.split:
            return replace(x, split=None)
        plain = len(features) == 3 and not (x.last or x.expanded or x.split)
        if plain and len(shape) == 4 and (math.prod(shape[:2]), *shape[2:]) == features:
            return replace(x, split=(shape[0], shape[1]))
        rows = math.prod(features[1:])
        if plain and rows > 1 and shape == (features[0], rows):
            return replace(x, flat=True)
        if shape == (*features, 1) and len(features) == 1 and not (x.last or x.rows):
            return replace(x, ones=1)
        if len(shape) == 3 and (pixel := self._pixel(x)) is not None:
            for turned in (pixel, replace(pixel, last=True)):
                if self.shape(turned) == shape:
                    return turned
        if math.prod(shape) == math.prod(self.shape(x)):
            part = self.parts[x.part]
            turned = replace(x, last=not x.last)
            if len(part.shape) == 3 and shape == self.shape(turned) and _one_order(part.shape):
                return turned
            if shape == part.shape and not x.last:
                return replace(x, ones=0)
            if len(shape) == 2 and shape == part.shape[:2] and not x.last:
                return replace(self.add(name, Flatten(), x), ones=1)  # one of two squeezed
            if len(shape) == 1:
                ordered = x.last and not _one_order(part.shape)
                row = self.add(name, Flatten(), x)
                return replace(row, rows=part.shape if ordered else None)
            if isinstance(part.layer, Flatten):
                before = Value(part.sources[0], last=x.rows is not None)
                if self.shape(before) == shape:
                    return before
        raise TilewrightError(
            f"reshapes {dimensions(self.shape(x))} to {dimensions(shape)}; flattening an image is "
            "understood"
        )

    def _pixel(self, x: Value) -> Value | None:
        """A row as a picture of one pixel, or with the axes of one."""
        part = self.parts[x.part]
        if len(part.shape) != 1 or x.rows is not None or x.expanded:
            return None
        if not isinstance(part.layer, Flatten):
            return replace(x, last=False, ones=2)
        before = Value(part.sources[0])
        return before if self.shape(before)[1:] == (1, 1) else None


def _one_order(picture: Shape) -> bool:
    """Whether a picture's values lie the same way with channels first and last."""
    return picture[0] == 1 or math.prod(picture[1:]) == 1


def name_of(path: Path) -> str:
    """A network's name, out of its file's."""
    return "".join(letter for letter in path.stem if letter.isprintable())[:60] or "network"
