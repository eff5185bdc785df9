"""Transposed convolutions, by which decoders make pictures larger: zeros between the picture's rows
and columns, and a convolution with the kernel turned round. The sums are the same, with products of
zeros among them."""

from __future__ import annotations

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.model.formats.parts import Array, Value
from tilewright.model.formats.places import Places
from tilewright.model.layers.sizes import LARGEST, Sides

Pair = tuple[int, int]


class Transposed(Places):
    """What a draft says of them."""

    def transposed(
        self, name: str, x: Value, weight: Array, bias: Array | None, *, stride: Pair,
        padding: Sides, dilation: Pair, groups: int, more: Pair,
    ) -> Value:  # fmt: skip
        """`weight` is input, output, y, x; `padding` is cut off, and `more` put below and right."""
        channels = self.parts[self.picture(x).part].shape[0]
        if weight.ndim != 4 or groups < 1 or len(weight) != channels or channels % groups:
            raise TilewrightError(f"weights do not fit {channels} channels in {groups} groups")
        if not all(1 <= each <= LARGEST for each in (*stride, *dilation)) or min(more) < 0:
            raise TilewrightError(f"strides {list(stride)} and dilations {list(dilation)}")
        x = self._apart(name, x, stride)
        reach = [each * (taps - 1) for each, taps in zip(dilation, weight.shape[2:], strict=True)]
        around = (
            reach[0] - padding[0], reach[1] - padding[1],
            reach[0] - padding[2] + more[0], reach[1] - padding[3] + more[1],
        )  # fmt: skip
        x = self.pad(name, x, around, (0, 0), "constant", 0.0)
        return self.convolution(
            name, x, _turned(weight, groups), bias, stride=(1, 1), padding=(0, 0, 0, 0),
            dilation=dilation, groups=groups,
        )  # fmt: skip

    def _apart(self, name: str, x: Value, stride: Pair) -> Value:
        """Zeros between rows and columns: a row and a column of them are put behind the picture,
        and taken as often as they are needed."""
        if stride == (1, 1):
            return x
        _, *sizes = self.parts[x.part].shape
        if any(size * step > LARGEST for size, step in zip(sizes, stride, strict=True)):
            raise TilewrightError(f"strides {list(stride)} for {sizes[0]}x{sizes[1]}")
        behind = (0, 0, int(stride[0] > 1), int(stride[1] > 1))
        padded = self.pad(name, x, behind, (0, 0), "constant", 0.0)
        rows, columns = (
            [size if place % step else place // step for place in range((size - 1) * step + 1)]
            for size, step in zip(sizes, stride, strict=True)
        )
        return self.take(name, padded, rows, columns)


def _turned(weight: Array, groups: int) -> Array:
    """As a convolution has it: output, input of a group, y, x, from the last tap to the first."""
    channels, filters, *taps = weight.shape
    grouped = weight.reshape(groups, channels // groups, filters, *taps)[..., ::-1, ::-1]
    return np.ascontiguousarray(
        grouped.swapaxes(1, 2).reshape(groups * filters, channels // groups, *taps)
    )
