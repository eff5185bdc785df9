"""PyTorch's operators that look at parts of pictures: convolutions, poolings, reductions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.model.formats.draft import How
from tilewright.model.formats.parts import Value
from tilewright.model.formats.torch_file import Call
from tilewright.model.formats.torch_inputs import Building, Given, Maker, constant, optional, value
from tilewright.model.layers import AveragePool, MaxPool
from tilewright.model.layers.sizes import Sides


def _pair(given: Given, name: str, default: int) -> tuple[int, int]:
    found = given.get(name)
    numbers = [default] if found is None else [found] if isinstance(found, int) else list(found)
    if len(numbers) not in (1, 2):
        raise TilewrightError(f"{name} has {len(numbers)} numbers: not in two dimensions")
    return int(numbers[0]), int(numbers[-1])


def _around(pair: tuple[int, int]) -> Sides:
    return pair[0], pair[1], pair[0], pair[1]


def _convolution(at: Building, call: Call, given: Given) -> Value:
    x, weight = value(given, "input"), constant(given, "weight")
    if given.get("transposed"):
        return _transposed(at, call, given)
    if weight.ndim != 4:
        raise TilewrightError(f"a kernel of {weight.ndim - 2} dimensions; 2 are understood")
    stride, dilation = _pair(given, "stride", 1), _pair(given, "dilation", 1)
    padding = given.get("padding")
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise TilewrightError(f"padding {padding!r:.40}")
        spans = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        spans = spans if padding == "same" else [0, 0]
        down, across = spans
        sides = (down // 2, across // 2, down - down // 2, across - across // 2)
    else:
        sides = _around(_pair(given, "padding", 0))
    return at.draft.convolution(
        call.name, x, weight, optional(given, "bias"), stride=stride, padding=sides,
        dilation=dilation, groups=given.get("groups", 1),
    )  # fmt: skip


def _transposed(at: Building, call: Call, given: Given) -> Value:
    return at.draft.transposed(
        call.name, value(given, "input"), constant(given, "weight"), optional(given, "bias"),
        stride=_pair(given, "stride", 1), padding=_around(_pair(given, "padding", 0)),
        dilation=_pair(given, "dilation", 1), groups=int(given.get("groups", 1)),
        more=_pair(given, "output_padding", 0),
    )  # fmt: skip


def _pooling(given: Given) -> dict[str, Any]:
    if _pair(given, "dilation", 1) != (1, 1):
        raise TilewrightError("a dilated pooling")
    size = _pair(given, "kernel_size", 1)
    stride = _pair(given, "stride", 0) if given.get("stride") else size
    padding, ceil = _around(_pair(given, "padding", 0)), bool(given.get("ceil_mode", False))
    return {"size": size, "stride": stride, "padding": padding, "ceil": ceil}


def _max_pool(at: Building, call: Call, given: Given) -> Value:
    return at.draft.max_pool(call.name, value(given), MaxPool(**_pooling(given)))


def _average_pool(at: Building, call: Call, given: Given) -> Value:
    divisor, settings = given.get("divisor_override"), _pooling(given)
    if divisor is None:
        counted = bool(given.get("count_include_pad", True))
        layer = AveragePool(**settings, count_padding=counted)
        return at.draft.average_pool(call.name, value(given), layer)
    if settings["ceil"]:
        raise TilewrightError("divides by a number of its own, with ceil_mode")
    layer = AveragePool(**settings, count_padding=True)
    made = at.draft.average_pool(call.name, value(given), layer)
    times = layer.size[0] * layer.size[1] / float(divisor)
    return at.draft.affine(call.name, made, np.array(times), np.array(0.0))


def _adaptive(at: Building, call: Call, given: Given) -> Value:
    """An output that is not said is as large as the picture."""
    x = at.draft.picture(value(given))
    wanted = list(given["output_size"])
    sizes = [wanted[0], wanted[-1]]
    _, *own = at.draft.shape(x)
    down, across = (int(own[axis] if size is None else size) for axis, size in enumerate(sizes))
    largest = call.operator == "adaptive_max_pool2d"
    return at.draft.windows(call.name, x, (down, across), largest)


def _mean(at: Building, call: Call, given: Given) -> Value:
    axis = given.get("dim")
    axes = (axis,) if isinstance(axis, int) else tuple(axis or ())
    keep = bool(given.get("keepdim", False))
    ways: dict[str, How] = {"amax": "largest", "sum": "sum"}
    how = ways.get(call.operator, "average")
    return at.draft.reduce(call.name, value(given), axes, keep, how)


def _max(at: Building, call: Call, given: Given) -> tuple[Value]:
    """Along an axis; places of the largest, which it gives as well, are not understood."""
    if "dim" not in given:
        raise TilewrightError("the largest value of all images, or the larger of two")
    axes, keep = (int(given["dim"]),), bool(given.get("keepdim", False))
    return (at.draft.reduce(call.name, value(given), axes, keep, "largest"),)


WINDOWS: dict[str, Maker] = {
    "_adaptive_avg_pool2d": _adaptive, "adaptive_avg_pool2d": _adaptive,
    "adaptive_max_pool2d": _adaptive, "amax": _mean, "avg_pool2d": _average_pool,
    "conv2d": _convolution, "conv_transpose2d": _transposed, "convolution": _convolution,
    "max": _max, "max_pool2d": _max_pool, "max_pool2d_with_indices": _max_pool, "mean": _mean,
    "sum": _mean,
}  # fmt: skip
