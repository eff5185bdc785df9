"""What a program of PyTorch's computes of constants alone: weights turned around or normalised,
sizes multiplied, places counted. Nothing is much larger than what it is made of."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.model.formats.torch_file import FLOATING, TYPES
from tilewright.model.formats.torch_inputs import Given

MOST = 1 << 20  # numbers that are counted up, or that broadcasting makes of fewer


def _same(given: Given) -> Any:
    return given["self"]


def _cast(given: Given) -> Any:
    """How precise floating point is to be counts for nothing, as of values."""
    wanted, values = given.get("dtype"), np.asarray(given["self"])
    if wanted is None or (wanted in FLOATING and values.dtype.kind == "f"):
        return given["self"]
    if wanted not in TYPES:
        raise TilewrightError("casts to a type that is not understood")
    return values.astype(TYPES[wanted])


def _bounded(*given: Any) -> list[NDArray[Any]]:
    """Arrays, if they are not much larger when they are broadcast."""
    arrays = [np.asarray(each) for each in given]
    size = math.prod(np.broadcast_shapes(*(each.shape for each in arrays)))
    if size > max(MOST, *(each.size for each in arrays)):
        raise TilewrightError("makes a constant that is too large")
    return arrays


def _both(function: Callable[..., Any]) -> Callable[[Given], Any]:
    def compute(given: Given) -> Any:
        if given.get("alpha", 1) != 1 or given.get("rounding_mode") is not None:
            raise TilewrightError("has settings that are not understood of constants")
        return function(*_bounded(given["self"], given["other"]))

    return compute


def _reduced(function: Callable[..., Any]) -> Callable[[Given], Any]:
    def compute(given: Given) -> Any:
        axis = given.get("dim")
        axes = None if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
        return function(given["self"], axis=axes, keepdims=bool(given.get("keepdim", False)))

    return compute


def _spread(root: bool) -> Callable[[Given], Any]:
    """The variance, or its root; one less than all numbers are counted unless it is said."""

    def compute(given: Given) -> Any:
        correction = 1 if given.get("correction") is None else given["correction"]
        if given.get("unbiased") is False:
            correction = 0
        found = _reduced(lambda x, **how: np.var(x, ddof=correction, **how))(given)
        return np.sqrt(found) if root else found

    return compute


def _norm(values: NDArray[Any], axis: Any, keepdims: bool) -> Any:
    return np.sqrt(np.sum(np.square(values), axis=axis, keepdims=keepdims))


def _vector_norm(given: Given) -> Any:
    if given.get("ord", 2) != 2:
        raise TilewrightError("a norm other than Euclid's")
    return _reduced(_norm)(given)


def _weight_norm(given: Given) -> Any:
    """A direction, and lengths along an axis."""
    direction, axis = given["v"], int(given.get("dim", 0)) % np.ndim(given["v"])
    others = tuple(each for each in range(np.ndim(direction)) if each != axis)
    direction, length, own = _bounded(direction, given["g"], _norm(direction, others, True))
    return direction * (length / own)


def _counted(given: Given) -> Any:
    start, end, step = given.get("start", 0), given["end"], given.get("step", 1)
    if (end - start) / step > MOST:
        raise TilewrightError(f"counts from {start} to {end}")
    return np.arange(start, end, step)


CONSTANTS: dict[str, Callable[[Given], Any]] = {
    **dict.fromkeys(("alias", "clone", "detach", "detach_", "lift_fresh_copy"), _same),
    **dict.fromkeys(("_to_copy", "to"), _cast),
    "_operator.floordiv": lambda given: operator.floordiv(*given.values()),
    "_operator.mul": lambda given: operator.mul(*given.values()),
    "_weight_norm": _weight_norm,
    "abs": lambda given: np.abs(given["self"]),
    "add": _both(np.add),
    "arange": _counted,
    "clamp": lambda given: np.clip(given["self"], given.get("min"), given.get("max")),
    "div": _both(np.divide),
    "linalg_vector_norm": _vector_norm,
    "mean": _reduced(np.mean),
    "mul": _both(np.multiply),
    "numpy_T": lambda given: np.transpose(given["self"]),
    "permute": lambda given: np.transpose(given["self"], given["dims"]),
    "reshape": lambda given: np.reshape(given["self"], given["shape"]),
    "sqrt": lambda given: np.sqrt(given["self"]),
    "std": _spread(root=True),
    "sub": _both(np.subtract),
    "t": lambda given: np.transpose(given["self"]),
    "transpose": lambda given: np.swapaxes(given["self"], given["dim0"], given["dim1"]),
    "unsqueeze": lambda given: np.expand_dims(given["self"], given["dim"]),
    "var": _spread(root=False),
    "view": lambda given: np.reshape(given["self"], given["size"]),
}
