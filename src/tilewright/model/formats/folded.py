"""A layer with what was around it folded in, and what becomes a layer since nobody takes it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.model.formats.parts import Affine, Array, Pad, Part, Wide
from tilewright.model.formats.places import beyond
from tilewright.model.layers import (
    AveragePool,
    Convolution,
    FullyConnected,
    Layer,
    MaxPool,
    Pixels,
    ReLU,
    ReLU6,
    Sigmoid,
    Take,
)
from tilewright.model.layers.sizes import Sides


def scaled_row(part: Part, affine: Affine) -> Part:
    """Every feature of a row times a number: a fully connected layer of one weight to an output."""
    (features,) = part.shape
    weights = {"weight": np.diag(affine.scale), "bias": affine.shift}
    return replace(part, layer=FullyConnected(features), weights=weights)


def scaled(part: Part, layer: Convolution | FullyConnected, affine: Affine) -> Part:
    """A layer of weighted sums whose outputs are scaled and shifted at once."""
    weight = part.weights["weight"]
    bias: Array | None = part.weights.get("bias")
    if (affine.scale != 1).any():
        weight = weight * affine.scale.reshape(-1, *[1] * (weight.ndim - 1))
        bias = None if bias is None else bias * affine.scale
    if affine.shift.any():
        bias = affine.shift if bias is None else bias + affine.shift
    weights = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
    if isinstance(layer, FullyConnected):
        return replace(part, layer=replace(layer, bias=bias is not None), weights=weights)
    changed = _convolution(layer, layer.padding, bias is not None)
    return replace(part, layer=changed, weights=weights)


def _convolution(layer: Convolution, padding: Sides, bias: bool) -> Convolution:
    return Convolution(
        layer.filters, layer.kernel, stride=layer.stride, padding=padding, dilation=layer.dilation,
        groups=layer.groups, bias=bias,
    )  # fmt: skip


def entering(pixels: Pixels, affine: Affine) -> Pixels:
    scales, shifts = np.array(pixels.scales), np.array(pixels.shifts)
    shifts = shifts * affine.scale + affine.shift
    return Pixels(pixels.shape, _numbers(scales * affine.scale), _numbers(shifts))


def _numbers(values: Wide) -> tuple[float, ...]:
    return tuple(map(float, values))


def padded(layer: Layer, around: Pad, before: Layer) -> Layer | None:
    """A layer that does the padding itself; None if it cannot."""
    padding, zeros = around.padding, around.fill == "zeros"
    if isinstance(layer, Convolution) and zeros:
        return _convolution(layer, _wider(layer.padding, padding), layer.bias)
    if isinstance(layer, AveragePool) and zeros and not (any(layer.padding) or layer.ceil):
        return AveragePool(layer.size, stride=layer.stride, padding=padding, count_padding=True)
    # Nothing there is smaller than what is around it.
    least = not zeros or isinstance(before, ReLU | ReLU6 | Sigmoid)
    if isinstance(layer, MaxPool) and least and not layer.ceil:
        wider = _wider(layer.padding, padding)
        return MaxPool(layer.size, stride=layer.stride, padding=wider)
    return None


def own_padding(part: Part, around: Pad) -> Part:
    """Zeros by a convolution with a 1x1 kernel, a repeated edge by places that are taken."""
    channels, height, width = part.shape
    above, left, below, right = around.padding
    if around.fill == "minus infinity":
        raise TilewrightError(f"{part.name}: minus infinity around a picture, before no maximum")
    if around.fill == "the edge":
        rows = beyond(height - above - below, above, below, "edge")
        taken = Take(rows, beyond(width - left - right, left, right, "edge"))
        return replace(part, layer=taken)
    layer = Convolution(channels, 1, padding=around.padding, groups=channels, bias=False)
    return replace(part, layer=layer, weights={"weight": np.ones((channels, 1, 1, 1))})


def _wider(own: Sides, more: Sides) -> Sides:
    above, left, below, right = (a + b for a, b in zip(own, more, strict=True))
    return above, left, below, right
