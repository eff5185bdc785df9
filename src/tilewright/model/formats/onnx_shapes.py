"""ONNX's operators that compute nothing: other shapes, zeros around, other types.

As in `onnx_nodes`; most of them are what exporters write around a flattening.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.model.formats.nearest import nearest
from tilewright.model.formats.onnx_constants import axes, sizes_of, target
from tilewright.model.formats.onnx_file import Node
from tilewright.model.formats.onnx_inputs import (
    Building,
    Inputs,
    Known,
    Maker,
    constant,
    optional,
    parted,
    value,
)
from tilewright.model.formats.onnx_tensors import FLOATS
from tilewright.model.formats.parts import Value, listed, place_of


def axes_of(node: Node, inputs: Inputs) -> tuple[int, ...] | None:
    given = [None, optional(inputs, 1)]
    return axes(node, given[: len(inputs)])


def _concat(at: Building, node: Node, inputs: Inputs) -> Value:
    values, constants = parted(inputs)
    if constants:
        raise TilewrightError("concatenates a constant")
    return at.draft.concat(node.name, node.attributes.get("axis", 1), *values)


def _reshaped(at: Building, node: Node, x: Value, sizes: Sequence[int]) -> Value:
    if not sizes or sizes[0] != at.batch:
        raise TilewrightError(f"mixes images: reshapes them to {listed(sizes)}")
    return at.draft.reshape(node.name, x, tuple(sizes[1:]))


def _flatten(at: Building, node: Node, inputs: Inputs) -> Value:
    axis, x = node.attributes.get("axis", 1), value(inputs)
    if place_of(axis, len(at.draft.shape(x)) + 1) != 1:
        raise TilewrightError(f"flattens along axis {axis}; 1 is understood")
    size = int(np.prod(at.draft.shape(x)))
    return at.draft.reshape(node.name, x, (size,))


def _reshape(at: Building, node: Node, inputs: Inputs) -> Value:
    x = value(inputs)
    return _reshaped(at, node, x, target(at.sizes(x), constant(inputs, 1), node))


def _squeeze(at: Building, node: Node, inputs: Inputs) -> Value:
    x = value(inputs)
    sizes = at.sizes(x)
    along = axes_of(node, inputs)
    gone = {place_of(axis, len(sizes)) for axis in along} if along else {
        axis for axis, size in enumerate(sizes) if size == 1 and axis
    }  # fmt: skip
    if any(sizes[axis] != 1 for axis in gone):
        raise TilewrightError("squeezes an axis that is not 1")
    return _reshaped(at, node, x, [size for axis, size in enumerate(sizes) if axis not in gone])


def _unsqueeze(at: Building, node: Node, inputs: Inputs) -> Value:
    x = value(inputs)
    along = axes_of(node, inputs) or ()
    sizes = list(at.sizes(x))
    rank = len(sizes) + len(along)
    for axis in sorted(place_of(each, rank) for each in along):
        sizes.insert(axis, 1)
    return _reshaped(at, node, x, sizes)


def _expand(at: Building, node: Node, inputs: Inputs) -> Value:
    x, wanted = value(inputs), [int(size) for size in np.ravel(constant(inputs, 1))]
    sizes = at.sizes(x)
    if len(wanted) != len(sizes) or wanted[0] not in (1, at.batch):
        raise TilewrightError(f"repeats {listed(sizes)} to {listed(wanted)}")
    both = zip(sizes[1:], wanted[1:], strict=True)
    return at.draft.expand(x, tuple(own if size == 1 else size for own, size in both))


def _transpose(at: Building, node: Node, inputs: Inputs) -> Value:
    x = value(inputs)
    backwards = tuple(range(len(at.sizes(x))))[::-1]
    return at.draft.transpose(node.name, x, tuple(node.attributes.get("perm", backwards)))


def _pad(at: Building, node: Node, inputs: Inputs) -> Value:
    x = value(inputs)
    mode = node.attributes.get("mode", "constant")
    filled = optional(inputs, 2)
    level = node.attributes.get("value", 0.0) if filled is None else float(filled.reshape(()))
    rank = len(at.sizes(x))
    given = node.attributes.get("pads")
    pads = [int(each) for each in (constant(inputs, 1) if given is None else given)]
    along = optional(inputs, 3)
    order = range(rank) if along is None else [place_of(int(axis), rank) for axis in along]
    if len(pads) != 2 * len(order):
        raise TilewrightError("pads are not two for each axis")
    both = {axis: (pads[i], pads[i + len(order)]) for i, axis in enumerate(order)}
    down, across = (1, 2) if x.last else (2, 3)
    channels = 3 if x.last else 1
    kept = {axis: sides for axis, sides in both.items() if any(sides)}
    if rank != 4 or not {*kept} <= {channels, down, across}:
        raise TilewrightError("pads something else than channels, height and width")
    above, below = both.get(down, (0, 0))
    left, right = both.get(across, (0, 0))
    sides = (above, left, below, right)
    return at.draft.pad(node.name, x, sides, both.get(channels, (0, 0)), mode, level)


def _slice(at: Building, node: Node, inputs: Inputs) -> Value:
    """Some channels, rows or columns."""
    x = value(inputs)
    sizes = at.sizes(x)
    if len(inputs) > 1:
        starts, ends = constant(inputs, 1), constant(inputs, 2)
        along, steps = optional(inputs, 3), optional(inputs, 4)
    else:
        starts, ends = (np.array(node.attributes[name]) for name in ("starts", "ends"))
        along, steps = (np.array(node.attributes.get("axes", range(len(starts)))), None)
    order = range(len(starts)) if along is None else along
    strides = [1] * len(starts) if steps is None else steps
    for start, end, axis, step in zip(starts, ends, order, strides, strict=True):
        place = place_of(int(axis), len(sizes))
        x = at.draft.every(node.name, x, place, (int(start), int(end), int(step)))
    return x


def _gather(at: Building, node: Node, inputs: Inputs) -> Value:
    x, places = value(inputs), constant(inputs, 1)
    sizes = at.sizes(x)
    axis = place_of(int(node.attributes.get("axis", 0)), len(sizes))
    if places.ndim != 1 or places.dtype.kind not in "iu" or not axis:
        raise TilewrightError("gathers images, or other than a row of whole numbers")
    size = sizes[axis]
    if not ((places >= -size) & (places < size)).all():
        raise TilewrightError(f"gathers places that are not there, of {size}")
    found = [int(place) % size for place in places]
    return at.draft.along(node.name, x, axis, found)


def _resize(at: Building, node: Node, inputs: Inputs) -> Value:
    """Of nearest neighbours. Up to opset 10, and as Upsample, there are scales alone."""
    x, old = value(inputs), node.operator == "Upsample" or at.opset < 11
    if (mode := node.attributes.get("mode", "nearest")) != "nearest":
        raise TilewrightError(f"resizes by mode {mode!r:.40}; 'nearest' is understood")
    if node.attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise TilewrightError("keeps an aspect ratio")
    scales = optional(inputs, 1 if old else 2)
    if scales is None and "scales" in node.attributes:
        scales = np.array(node.attributes["scales"])
    wanted = optional(inputs, 3)
    sizes, axes = at.sizes(x), node.attributes.get("axes")
    order = [place_of(int(axis), len(sizes)) for axis in axes or range(len(sizes))]
    given = [each for each in (scales, wanted) if each is not None and each.size]
    if len(given) != 1 or given[0].shape != (len(order),) or len({*order}) < len(order):
        raise TilewrightError("needs either scales or sizes, one for each axis")
    transform = node.attributes.get("coordinate_transformation_mode", "half_pixel")
    rounding = node.attributes.get("nearest_mode", "round_prefer_floor")
    ways = ("asymmetric", "floor") if old else (transform, rounding)
    said, own = given[0].tolist(), [sizes[axis] for axis in order]
    # In float32, as ONNX Runtime has it: seven tenths of 10 are 7.
    counts = [
        int(number) if given[0] is wanted else int(np.float32(size) * np.float32(number))
        for size, number in zip(own, said, strict=True)
    ]
    if counts == own:
        return x  # whatever the scales, to ONNX Runtime and PyTorch
    for axis, size, count, number in zip(order, own, counts, said, strict=True):
        scale = count / size if given[0] is wanted else number
        if scale != 1:  # of one axis others may lead to as many places, but to other ones
            x = at.draft.along(node.name, x, axis, nearest(size, count, scale, *ways))
    return x


def _split(at: Building, node: Node, inputs: Inputs) -> tuple[Value, ...]:
    """Sizes are an input, or an attribute in older opsets, or equal but for the last."""
    x, axis, parts = value(inputs), node.attributes.get("axis", 0), len(node.outputs)
    given = optional(inputs, 1)
    listed = node.attributes.get("split") if given is None else np.ravel(given).tolist()
    channels = at.sizes(x)[axis]
    each = -(-channels // parts)
    sizes = [each] * (parts - 1) + [channels - each * (parts - 1)] if listed is None else listed
    if len(sizes) != parts:
        raise TilewrightError(f"gives {parts} parts of {len(sizes)} sizes")
    return at.draft.split(node.name, x, axis, [int(size) for size in sizes])


def _cast(at: Building, node: Node, inputs: Inputs) -> Value:
    if node.attributes.get("to") not in FLOATS:
        raise TilewrightError("casts values of the network to something else than floating point")
    return value(inputs)


def _dropout(at: Building, node: Node, inputs: Inputs) -> Value:
    training = optional(inputs, 2)
    if any(node.outputs[1:]) or (training is not None and training.any()):
        raise TilewrightError("is in training mode, or its mask is asked for")
    return value(inputs)


def _shape(at: Building, node: Node, inputs: Inputs) -> NDArray[np.int64]:
    return sizes_of(node, at.sizes(value(inputs)))


def _identity(at: Building, node: Node, inputs: Inputs) -> Value:
    return value(inputs)


def _cast_like(at: Building, node: Node, inputs: Inputs) -> Known:
    """All numbers that depend on the image are of one type."""
    value(inputs, 1)
    if inputs[0] is None:
        raise TilewrightError("input 1 is missing")
    return inputs[0]


SHAPES: dict[str, Maker] = {
    "Cast": _cast, "CastLike": _cast_like, "Concat": _concat, "Dropout": _dropout,
    "Expand": _expand, "Flatten": _flatten, "Gather": _gather, "Identity": _identity, "Pad": _pad,
    "Reshape": _reshape, "Resize": _resize, "Shape": _shape, "Slice": _slice, "Split": _split,
    "Squeeze": _squeeze, "Transpose": _transpose, "Unsqueeze": _unsqueeze, "Upsample": _resize,
}  # fmt: skip
