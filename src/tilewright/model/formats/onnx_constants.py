"""What a graph computes of constants alone: shapes for a flattening, weights turned around.

Exporters write such arithmetic instead of its results. An operator is here if they do; results are
no larger than what they are made of, or small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.model.formats.onnx_file import Node
from tilewright.model.formats.parts import listed

Array = NDArray[Any]
Function = Callable[[Node, list[Any]], Array]
GROWN = 1 << 20  # values
# ONNX's numbers of types that casts may lead to.
TYPES = {
    1: np.float32, 2: np.uint8, 3: np.int8, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float16,
    11: np.float64,
}  # fmt: skip


def axes(node: Node, inputs: Sequence[Array | None], at: int = 1) -> tuple[int, ...] | None:
    """Axes as an attribute, or as an input in later opsets."""
    if len(inputs) > at:
        given = inputs[at]
        return None if given is None else tuple(int(axis) for axis in np.ravel(given))
    found = node.attributes.get("axes")
    return None if found is None else tuple(found)


def evaluate(node: Node, inputs: Sequence[Array | None]) -> Array:
    """The only output of a node all of whose inputs are known."""
    try:
        present = [each for each in inputs if each is not None]
        # No larger than what it is made of, or small.
        if _size(node, present) > max([GROWN, *(each.size for each in present)]):
            raise TilewrightError("makes a constant that is too large")
        with np.errstate(all="ignore"):
            return np.asarray(FUNCTIONS[node.operator](node, list(inputs)))
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError) as error:
        raise TilewrightError(f"cannot be computed of these constants: {error}") from error


def _size(node: Node, inputs: Sequence[Array]) -> int:
    """No fewer values than the result has, for those that make more of what they take."""
    match node.operator:
        case "Concat":
            return sum(each.size for each in inputs)
        case "ConstantOfShape":
            return math.prod(max(0, int(size)) for size in np.ravel(inputs[0]))
        case "Gather":
            along = int(inputs[0].shape[node.attributes.get("axis", 0)])
            return inputs[0].size // max(1, along) * inputs[1].size
    if node.operator in ELEMENTWISE:
        return math.prod(_broadcast(*(each.shape for each in inputs)))
    return 0


def _broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(size) for size in np.broadcast_shapes(*shapes))


def _computed(function: Callable[..., Any]) -> Function:
    return lambda node, inputs: np.asarray(function(*inputs))


def _reduced(function: Callable[..., Any]) -> Function:
    def reduce(node: Node, inputs: list[Any]) -> Array:
        keep = bool(node.attributes.get("keepdims", 1))
        return np.asarray(function(inputs[0], axis=axes(node, inputs), keepdims=keep))

    return reduce


def _constant(node: Node, inputs: list[Any]) -> Array:
    kinds = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32,
             "value_floats": np.float32}  # fmt: skip
    for name, value in node.attributes.items():
        if name == "value" and value is not None:
            return np.asarray(value)
        if name in kinds:
            return np.array(value, kinds[name])
    raise TilewrightError("holds a constant of a kind that is not understood")


def _of_shape(node: Node, inputs: list[Any]) -> Array:
    shape = tuple(int(size) for size in inputs[0])
    value = node.attributes.get("value")
    return np.full(shape, 0.0 if value is None else np.ravel(value)[0])


def _unsqueeze(node: Node, inputs: list[Any]) -> Array:
    return np.expand_dims(inputs[0], axes(node, inputs) or ())


def _squeeze(node: Node, inputs: list[Any]) -> Array:
    return np.asarray(np.squeeze(inputs[0], axes(node, inputs)))


def _slice(node: Node, inputs: list[Any]) -> Array:
    if len(inputs) > 1:
        starts, ends = inputs[1], inputs[2]
        along = inputs[3] if len(inputs) > 3 and inputs[3] is not None else range(len(starts))
        steps = inputs[4] if len(inputs) > 4 and inputs[4] is not None else [1] * len(starts)
    else:
        starts, ends = node.attributes["starts"], node.attributes["ends"]
        along, steps = node.attributes.get("axes", range(len(starts))), [1] * len(starts)
    cut = [slice(None)] * inputs[0].ndim
    for start, end, axis, step in zip(starts, ends, along, steps, strict=True):
        cut[int(axis)] = slice(int(start), int(end), int(step))
    return np.asarray(inputs[0][tuple(cut)])


def _reshape(node: Node, inputs: list[Any]) -> Array:
    return np.reshape(inputs[0], target(inputs[0].shape, inputs[1], node))


def target(shape: tuple[int, ...], wanted: Array, node: Node) -> tuple[int, ...]:
    """The shape that a Reshape leads to."""
    zero = bool(node.attributes.get("allowzero"))
    sizes = [int(size) for size in np.ravel(wanted)]
    if any(size == 0 and not zero and at >= len(shape) for at, size in enumerate(sizes)):
        raise TilewrightError(f"keeps a size that is not there: reshapes to {sizes}")
    sizes = [shape[at] if size == 0 and not zero else size for at, size in enumerate(sizes)]
    known = math.prod(size for size in sizes if size != -1)
    if sizes.count(-1) == 1 and known > 0 and math.prod(shape) % known == 0:
        sizes[sizes.index(-1)] = math.prod(shape) // known
    if min(sizes, default=1) < 0 or math.prod(sizes) != math.prod(shape):
        raise TilewrightError(f"cannot reshape {listed(shape)} to {listed(sizes)}")
    return tuple(sizes)


def sizes_of(node: Node, shape: Sequence[int]) -> NDArray[np.int64]:
    """What a Shape says of what is so large."""
    whole = np.array(shape, np.int64)
    return whole[node.attributes.get("start", 0) : node.attributes.get("end")]


def _cast(node: Node, inputs: list[Any]) -> Array:
    kind = node.attributes.get("to")
    if kind not in TYPES:
        raise TilewrightError("casts to a type that is not understood")
    return np.asarray(inputs[0].astype(TYPES[kind]))


def _divide(a: Any, b: Any) -> Array:
    if np.issubdtype(a.dtype, np.integer):
        return np.asarray(np.trunc(a / np.where(b == 0, 1, b)).astype(a.dtype))
    return np.asarray(a / b)


def _remainder(a: Any, b: Any) -> Array:
    """Of sizes: where one of both is negative, there are two opinions."""
    if a.dtype.kind not in "iu" or (a < 0).any() or not (b > 0).all():
        raise TilewrightError("a remainder of other than whole numbers from 0 on")
    return np.asarray(np.mod(a, b))


def _transpose(node: Node, inputs: list[Any]) -> Array:
    return np.transpose(inputs[0], node.attributes.get("perm"))


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "Abs": np.abs, "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Sqrt": np.sqrt,
    "Neg": np.negative, "Reciprocal": np.reciprocal, "Pow": np.power, "Div": _divide,
    "Equal": np.equal, "Mod": _remainder, "Where": np.where,
}  # fmt: skip
FUNCTIONS: dict[str, Function] = {
    **{name: _computed(function) for name, function in ELEMENTWISE.items()},
    "Cast": _cast,
    "Concat": lambda node, inputs: np.concatenate(inputs, node.attributes["axis"]),
    "Constant": _constant,
    "ConstantOfShape": _of_shape,
    "Flatten": lambda node, inputs: np.reshape(inputs[0], (len(inputs[0]), -1)),
    "Gather": lambda node, inputs: np.take(inputs[0], inputs[1], node.attributes.get("axis", 0)),
    "Identity": lambda node, inputs: inputs[0],
    "ReduceL2": _reduced(lambda x, **how: np.sqrt(np.sum(np.square(x), **how))),
    "ReduceMean": _reduced(np.mean),
    "ReduceProd": _reduced(np.prod),
    "ReduceSum": _reduced(np.sum),
    "Reshape": _reshape,
    "Shape": lambda node, inputs: sizes_of(node, inputs[0].shape),
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
