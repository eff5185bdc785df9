"""PyTorch's operators (ATen) in the words of a draft: as modules export them, and as they are after
`run_decompositions`."""

from __future__ import annotations

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.model.formats.parts import Erf, Exp, Value
from tilewright.model.formats.torch_file import FLOATING, Call
from tilewright.model.formats.torch_inputs import Building, Given, Maker, constant, optional, value
from tilewright.model.formats.torch_shapes import SHAPES
from tilewright.model.formats.torch_windows import WINDOWS
from tilewright.model.formats.values import SELU
from tilewright.model.layers import (
    GELU,
    HardSwish,
    Layer,
    Mish,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Tanh,
    TanhGELU,
)


def _linear(at: Building, call: Call, given: Given) -> Value:
    bias, weight = optional(given, "bias"), constant(given, "weight")
    return at.draft.fully_connected(call.name, value(given, "input"), weight, bias)


def _addmm(at: Building, call: Call, given: Given) -> Value:
    if given.get("beta", 1) != 1 or given.get("alpha", 1) != 1:
        raise TilewrightError("alpha and beta other than 1")
    weight, bias = constant(given, "mat2").T, constant(given, "self")
    return at.draft.fully_connected(call.name, value(given, "mat1"), weight, bias)


def _mm(at: Building, call: Call, given: Given) -> Value:
    other = constant(given, "mat2" if "mat2" in given else "other")
    return at.draft.fully_connected(call.name, value(given), other.T, None)


def _batch_norm(at: Building, call: Call, given: Given) -> Value:
    if given.get("training"):
        raise TilewrightError("is in training mode: call .eval() first")
    x = value(given, "input")
    channels = at.draft.parts[x.part].shape[0]
    gamma, beta = optional(given, "weight"), optional(given, "bias")
    return at.draft.batch_norm(
        given["module"] or call.name, x,
        np.ones(channels) if gamma is None else gamma,
        np.zeros(channels) if beta is None else beta,
        constant(given, "running_mean"), constant(given, "running_var"), float(given["eps"]),
    )  # fmt: skip


def _add(at: Building, call: Call, given: Given) -> Value:
    a, b, factor = given.get("self"), given.get("other"), given.get("alpha", 1)
    if isinstance(a, Value) and isinstance(b, Value):
        scaled = at.draft.affine(call.name, b, np.array(float(factor)), np.array(0.0))
        return at.draft.sum(call.name, a, scaled)
    x, other = (a, b) if isinstance(a, Value) else (b, a)
    assert isinstance(x, Value)
    shift = np.asarray(other, np.float64) * (factor if x is a else 1)
    scale = 1 if x is a else factor
    return at.draft.affine(call.name, x, np.array(float(scale)), shift)


def _subtract(at: Building, call: Call, given: Given) -> Value:
    return _add(at, call, {**given, "alpha": -given.get("alpha", 1)})


def _subtract_from(at: Building, call: Call, given: Given) -> Value:
    """`other` less `self`."""
    return _subtract(at, call, {**given, "self": given["other"], "other": given["self"]})


def _multiply(at: Building, call: Call, given: Given) -> Value:
    a, b = given.get("self"), given.get("other")
    if isinstance(a, Value) and isinstance(b, Value):
        return at.draft.product(call.name, a, b)
    x, factor = (a, b) if isinstance(a, Value) else (b, a)
    assert isinstance(x, Value)
    return at.draft.affine(call.name, x, np.asarray(factor), np.array(0.0))


def _divide(at: Building, call: Call, given: Given) -> Value:
    divisor = constant(given, "other").astype(np.float64)
    if given.get("rounding_mode") is not None or not divisor.all():
        raise TilewrightError("rounds what it divides, or divides by zero")
    return at.draft.affine(call.name, value(given), 1 / divisor, np.array(0.0))


def _clamp(at: Building, call: Call, given: Given) -> Value:
    names = ("min_val", "max_val") if call.operator.startswith("hardtanh") else ("min", "max")
    defaults = (-1.0, 1.0) if "min_val" in names else (-np.inf, np.inf)
    low, high = (
        float(default if given.get(name) is None else given[name])
        for name, default in zip(names, defaults, strict=True)
    )
    return at.draft.clip(call.name, value(given), low, high)


def _leaky(at: Building, call: Call, given: Given) -> Value:
    return at.draft.leaky(call.name, value(given), float(given.get("negative_slope", 0.01)))


def _elu(at: Building, call: Call, given: Given) -> Value:
    if float(given.get("input_scale", 1)) != 1:
        raise TilewrightError("an ELU of multiples of its values")
    alpha, scale = float(given.get("alpha", 1)), float(given.get("scale", 1))
    return at.draft.elu(call.name, value(given), alpha, scale)


def _celu(at: Building, call: Call, given: Given) -> Value:
    return at.draft.celu(call.name, value(given), float(given.get("alpha", 1)))


def _selu(at: Building, call: Call, given: Given) -> Value:
    return at.draft.elu(call.name, value(given), *SELU)


def _negative(at: Building, call: Call, given: Given) -> Value:
    return at.draft.affine(call.name, value(given), np.array(-1.0), np.array(0.0))


def _absolute(at: Building, call: Call, given: Given) -> Value:
    return at.draft.absolute(call.name, value(given))


def _glu(at: Building, call: Call, given: Given) -> Value:
    """The first half of the channels, times the logistic function of the second."""
    x, axis = value(given), int(given.get("dim", -1))
    half = at.sizes(x)[axis] // 2
    first, second = at.draft.split(call.name, x, axis, [half, half])
    return at.draft.product(call.name, first, at.draft.each(call.name, Sigmoid(), second))


def _prelu(at: Building, call: Call, given: Given) -> Value:
    x, slopes = value(given), constant(given, "weight")
    more = len(at.draft.shape(x)) - 1
    return at.draft.prelu(call.name, x, slopes.reshape(-1, *[1] * more))


def _hard_sigmoid(at: Building, call: Call, given: Given) -> Value:
    return at.draft.hard_sigmoid(call.name, value(given))


def _gelu(at: Building, call: Call, given: Given) -> Value:
    mode = given.get("approximate", "none")
    if mode not in ("none", "tanh"):
        raise TilewrightError(f"approximate is {mode!r:.40}")
    return at.draft.each(call.name, TanhGELU() if mode == "tanh" else GELU(), value(given))


def _softplus(at: Building, call: Call, given: Given) -> Value:
    if (end := float(given.get("threshold", 20))) < 20:
        raise TilewrightError(f"a softplus that is left out from {end:g} on; 20 is understood")
    return at.draft.softplus(call.name, value(given), float(given.get("beta", 1)))


def _log(at: Building, call: Call, given: Given) -> Value:
    return at.draft.logarithm(call.name, value(given), 1.0 if call.operator == "log1p" else 0.0)


def _log_sigmoid(at: Building, call: Call, given: Given) -> Value:
    made = at.draft.each(call.name, Sigmoid(), value(given))
    return at.draft.logarithm(call.name, made)


def _greater(at: Building, call: Call, given: Given) -> Value:
    return at.draft.above(call.name, value(given), float(constant(given, "other").reshape(())))


def _where(at: Building, call: Call, given: Given) -> Value:
    taken = (value(given, name) for name in ("condition", "self", "other"))
    return at.draft.where(call.name, *taken)


def _power(at: Building, call: Call, given: Given) -> Value:
    return at.draft.power(call.name, value(given), float(constant(given, "exponent").reshape(())))


def _square(at: Building, call: Call, given: Given) -> Value:
    return at.draft.power(call.name, value(given), 2)


def _softmax(at: Building, call: Call, given: Given) -> Value:
    return at.draft.softmax(call.name, value(given), int(given["dim"]))


def _log_softmax(at: Building, call: Call, given: Given) -> Value:
    if call.outputs[0] != at.output:
        raise TilewrightError("logarithms are understood of the last layer alone")
    at.draft.notes["output"] = f"probabilities, where {call.name} gives their logarithms"
    return _softmax(at, call, given)


def _dropped(at: Building, call: Call, given: Given) -> Value:
    if given.get("train"):
        raise TilewrightError("is in training mode: call .eval() first")
    return value(given, "input" if "input" in given else "self")


def _cast(at: Building, call: Call, given: Given) -> Value:
    if given.get("dtype") not in (None, *FLOATING):
        raise TilewrightError("casts values of the network to something else than floating point")
    return value(given)


def _size(at: Building, call: Call, given: Given) -> int:
    return at.sizes(value(given))[int(given["dim"])]


def _each(layer: Layer) -> Maker:
    return lambda at, call, given: at.draft.each(call.name, layer, value(given))


# What only checks, and makes nothing.
CHECKS = ("_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range_for_size")

# Operators that work in place have the names of those that do not.
MAKERS: dict[str, Maker] = {
    **SHAPES, **WINDOWS, "_log_softmax": _log_softmax,
    "_native_batch_norm_legit_no_training": _batch_norm, "_softmax": _softmax, "_to_copy": _cast,
    "abs": _absolute, "add": _add, "addmm": _addmm, "alias": _dropped, "alpha_dropout": _dropped,
    "batch_norm": _batch_norm, "celu": _celu, "clamp": _clamp, "clamp_max": _clamp,
    "clamp_min": _clamp, "clone": _dropped, "contiguous": _dropped, "detach": _dropped,
    "div": _divide, "dropout": _dropped, "elu": _elu, "erf": _each(Erf()), "exp": _each(Exp()),
    "expm1": _each(Exp(less_one=True)), "feature_alpha_dropout": _dropped,
    "feature_dropout": _dropped, "gelu": _gelu, "glu": _glu, "gt": _greater,
    "hardsigmoid": _hard_sigmoid, "hardswish": _each(HardSwish()), "hardtanh": _clamp,
    "leaky_relu": _leaky, "linear": _linear, "log": _log, "log1p": _log,
    "log_sigmoid": _log_sigmoid, "log_softmax": _log_softmax, "matmul": _mm, "mish": _each(Mish()),
    "mm": _mm, "mul": _multiply, "neg": _negative, "pow": _power, "prelu": _prelu,
    "relu": _each(ReLU()), "relu6": _each(ReLU6()), "rsub": _subtract_from, "selu": _selu,
    "sigmoid": _each(Sigmoid()), "silu": _each(SiLU()), "softmax": _softmax,
    "softplus": _softplus, "square": _square, "sub": _subtract, "sym_size": _size,
    "tanh": _each(Tanh()), "to": _cast, "where": _where,
}  # fmt: skip
