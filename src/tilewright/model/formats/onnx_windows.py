"""ONNX's operators that look at parts of pictures: convolutions, poolings, reductions.

As in `onnx_nodes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.model.formats.draft import How
from tilewright.model.formats.onnx_file import Node
from tilewright.model.formats.onnx_inputs import (
    Building,
    Inputs,
    Maker,
    constant,
    flag,
    numbers,
    optional,
    value,
)
from tilewright.model.formats.onnx_shapes import axes_of
from tilewright.model.formats.parts import Value
from tilewright.model.layers import AveragePool, MaxPool
from tilewright.model.layers.sizes import Sides


def _pair(node: Node, name: str) -> tuple[int, int]:
    down, across = numbers(node, name, (1, 1))
    return down, across


def _padding(
    node: Node, sizes: Sequence[int], extent: Sequence[int], stride: Sequence[int]
) -> Sides:
    """As it is said, or what "same" means for these sizes."""
    mode = node.attributes.get("auto_pad", "NOTSET")
    if mode == "NOTSET":
        above, left, below, right = numbers(node, "pads", (0, 0, 0, 0))
        return above, left, below, right
    if mode == "VALID":
        return 0, 0, 0, 0
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise TilewrightError(f"auto_pad is {mode!r:.40}")
    if min(stride) < 1:
        raise TilewrightError(f"strides are {list(stride)}")
    before, after = [], []
    for size, span, step in zip(sizes, extent, stride, strict=True):
        total = max(0, (-(-size // step) - 1) * step + span - size)
        less, more = total // 2, total - total // 2
        before.append(less if mode == "SAME_UPPER" else more)
        after.append(more if mode == "SAME_UPPER" else less)
    return before[0], before[1], after[0], after[1]


def _conv(at: Building, node: Node, inputs: Inputs) -> Value:
    x, weight = at.draft.picture(value(inputs)), constant(inputs, 1)
    if weight.ndim != 4:
        raise TilewrightError(f"a kernel of {weight.ndim - 2} dimensions; 2 are understood")
    stride, dilation = _pair(node, "strides"), _pair(node, "dilations")
    taps = weight.shape[2:]
    if numbers(node, "kernel_shape", taps) != taps:
        raise TilewrightError("kernel_shape is not that of the weights")
    extent = [each * (count - 1) + 1 for each, count in zip(dilation, taps, strict=True)]
    padding = _padding(node, at.draft.shape(x)[1:], extent, stride)
    return at.draft.convolution(
        node.name, x, weight, optional(inputs, 2), stride=stride, padding=padding,
        dilation=dilation, groups=node.attributes.get("group", 1),
    )  # fmt: skip


def _conv_transpose(at: Building, node: Node, inputs: Inputs) -> Value:
    """Its padding is what is cut off; a shape that is said, or the picture's times the stride, says
    how much that is."""
    x, weight = at.draft.picture(value(inputs)), constant(inputs, 1)
    if weight.ndim != 4:
        raise TilewrightError(f"a kernel of {weight.ndim - 2} dimensions; 2 are understood")
    stride, dilation = _pair(node, "strides"), _pair(node, "dilations")
    more, mode = numbers(node, "output_padding", (0, 0)), node.attributes.get("auto_pad", "NOTSET")
    sizes, taps = at.draft.shape(x)[1:], weight.shape[2:]
    same = mode in ("SAME_UPPER", "SAME_LOWER")
    if not same and mode not in ("NOTSET", "VALID"):
        raise TilewrightError(f"auto_pad is {mode!r:.40}")
    pads = (0, 0, 0, 0)
    above, left, below, right = pads if mode == "VALID" else numbers(node, "pads", pads)
    if same or "output_shape" in node.attributes:
        whole = tuple(size * step for size, step in zip(sizes, stride, strict=True))
        wanted = node.attributes.get("output_shape", whole)[-2:]
        cut = [
            step * (size - 1) + extra + each * (count - 1) + 1 - out
            for step, size, extra, each, count, out in zip(
                stride, sizes, more, dilation, taps, wanted, strict=True
            )
        ]
        if min(cut) < 0:
            raise TilewrightError(f"its windows do not reach as far as {wanted[0]}x{wanted[1]}")
        less, rest = [each // 2 for each in cut], [each - each // 2 for each in cut]
        first, last = (less, rest) if mode == "SAME_UPPER" else (rest, less)
        above, left, below, right = *first, *last
    return at.draft.transposed(
        node.name, x, weight, optional(inputs, 2), stride=stride,
        padding=(above, left, below, right), dilation=dilation,
        groups=int(node.attributes.get("group", 1)), more=(more[0], more[1]),
    )  # fmt: skip


def _pooling(at: Building, node: Node, inputs: Inputs) -> tuple[Value, dict[str, Any]]:
    x = at.draft.picture(value(inputs))
    if any(node.outputs[1:]):
        raise TilewrightError("its indices are asked for")
    if "kernel_shape" not in node.attributes:
        raise TilewrightError("lacks kernel_shape")
    size, stride = _pair(node, "kernel_shape"), _pair(node, "strides")
    if numbers(node, "dilations", (1, 1)) != (1, 1):
        raise TilewrightError("a dilated pooling")
    padding = _padding(node, at.draft.shape(x)[1:], size, stride)
    ceil = flag(node, "ceil_mode")
    return x, {"size": size, "stride": stride, "padding": padding, "ceil": ceil}


def _max_pool(at: Building, node: Node, inputs: Inputs) -> Value:
    x, settings = _pooling(at, node, inputs)
    return at.draft.max_pool(node.name, x, MaxPool(**settings))


def _average_pool(at: Building, node: Node, inputs: Inputs) -> Value:
    x, settings = _pooling(at, node, inputs)
    counted = flag(node, "count_include_pad")
    return at.draft.average_pool(node.name, x, AveragePool(**settings, count_padding=counted))


def _global(how: How) -> Maker:
    def make(at: Building, node: Node, inputs: Inputs) -> Value:
        return at.draft.over_picture(node.name, at.draft.picture(value(inputs)), how)

    return make


def _reduce(how: How) -> Maker:
    def make(at: Building, node: Node, inputs: Inputs) -> Value:
        along = axes_of(node, inputs)
        keep = flag(node, "keepdims", 1)
        return at.draft.reduce(node.name, value(inputs), along or (), keep, how)

    return make


WINDOWS: dict[str, Maker] = {
    "AveragePool": _average_pool, "Conv": _conv, "ConvTranspose": _conv_transpose,
    "GlobalAveragePool": _global("average"), "GlobalMaxPool": _global("largest"),
    "MaxPool": _max_pool, "ReduceMax": _reduce("largest"), "ReduceMean": _reduce("average"),
    "ReduceSum": _reduce("sum"),
}  # fmt: skip
