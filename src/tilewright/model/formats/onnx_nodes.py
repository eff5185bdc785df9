"""ONNX's operators in the words of a draft.

Each function here takes the node, what its inputs are (`Value`s, or arrays where they are constant,
None where left out), and adds parts. What it does not understand it refuses by a TilewrightError.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.model.formats.onnx_file import Node
from tilewright.model.formats.onnx_inputs import (
    Building,
    Inputs,
    Maker,
    constant,
    flag,
    optional,
    parted,
    value,
)
from tilewright.model.formats.onnx_shapes import SHAPES
from tilewright.model.formats.onnx_windows import WINDOWS
from tilewright.model.formats.parts import Erf, Exp, Value
from tilewright.model.formats.values import SELU
from tilewright.model.layers import (
    GELU,
    TYPES,
    Elementwise,
    Layer,
    Mish,
    SiLU,
    TanhGELU,
)


def _gemm(at: Building, node: Node, inputs: Inputs) -> Value:
    x, weight, added = value(inputs), constant(inputs, 1), optional(inputs, 2)
    alpha, beta = node.attributes.get("alpha", 1.0), node.attributes.get("beta", 1.0)
    if flag(node, "transA"):
        raise TilewrightError("its first input is transposed, which mixes images")
    if weight.ndim != 2:
        raise TilewrightError("weights are no matrix")
    weight = weight if flag(node, "transB") else weight.T
    if alpha != 1:
        weight = weight.astype(np.float64) * alpha
    made = at.draft.fully_connected(node.name, x, weight, None)
    if added is None:
        return made
    shift = added if beta == 1 else added.astype(np.float64) * beta
    return at.draft.affine(node.name, made, np.array(1.0), shift)


def _matmul(at: Building, node: Node, inputs: Inputs) -> Value:
    weight = constant(inputs, 1)
    if weight.ndim != 2:
        raise TilewrightError("weights are no matrix")
    return at.draft.fully_connected(node.name, value(inputs), weight.T, None)


def _batch_norm(at: Building, node: Node, inputs: Inputs) -> Value:
    if flag(node, "training_mode"):
        raise TilewrightError("is in training mode")
    scale, shift, mean, variance = (constant(inputs, place) for place in range(1, 5))
    name = node.name
    # Exporters name nodes anew; a parameter's name is still the module's.
    if len(node.inputs) > 1 and node.inputs[1].endswith(".weight"):
        name = node.inputs[1].removesuffix(".weight")[:80]
    epsilon = node.attributes.get("epsilon", 1e-5)
    return at.draft.batch_norm(name, value(inputs), scale, shift, mean, variance, epsilon)


def _add(at: Building, node: Node, inputs: Inputs) -> Value:
    values, constants = parted(inputs)
    made = at.draft.sum(node.name, *values) if len(values) > 1 else values[0]
    for each in constants:
        made = at.draft.affine(node.name, made, np.array(1.0), each)
    return made


def _subtract(at: Building, node: Node, inputs: Inputs) -> Value:
    (x, *others), constants = parted(inputs)
    if others:
        return at.draft.difference(node.name, x, others[0])
    wide = constants[0].astype(np.float64)
    if isinstance(inputs[0], Value):
        return at.draft.affine(node.name, x, np.array(1.0), -wide)
    return at.draft.affine(node.name, x, np.array(-1.0), wide)


def _multiply(at: Building, node: Node, inputs: Inputs) -> Value:
    (x, *others), constants = parted(inputs)
    if others:
        return at.draft.product(node.name, x, others[0])
    return at.draft.affine(node.name, x, constants[0], np.array(0.0))


def _divide(at: Building, node: Node, inputs: Inputs) -> Value:
    wide = constant(inputs, 1).astype(np.float64)
    if not wide.all():
        raise TilewrightError("divides by zero")
    return at.draft.affine(node.name, value(inputs), 1 / wide, np.array(0.0))


def _clip(at: Building, node: Node, inputs: Inputs) -> Value:
    bounds = []
    for place, name in enumerate(("min", "max"), start=1):
        given = optional(inputs, place)
        default = node.attributes.get(name, (-np.inf, np.inf)[place - 1])
        bounds.append(float(default if given is None else given.reshape(())))
    return at.draft.clip(node.name, value(inputs), *bounds)


def _least(at: Building, node: Node, inputs: Inputs) -> Value:
    """Max with a constant."""
    (x, *others), constants = parted(inputs)
    if others or len(constants) != 1 or constants[0].size != 1:
        raise TilewrightError("the larger of two values; of a value and one number is understood")
    return at.draft.clip(node.name, x, float(constants[0].reshape(())), np.inf)


def _most(at: Building, node: Node, inputs: Inputs) -> Value:
    """Min with a constant."""
    (x, *others), constants = parted(inputs)
    if others or len(constants) != 1 or constants[0].size != 1:
        raise TilewrightError("the smaller of two values; of a value and one number is understood")
    return at.draft.clip(node.name, x, -np.inf, float(constants[0].reshape(())))


def _prelu(at: Building, node: Node, inputs: Inputs) -> Value:
    return at.draft.prelu(node.name, value(inputs), constant(inputs, 1))


def _leaky(at: Building, node: Node, inputs: Inputs) -> Value:
    return at.draft.leaky(node.name, value(inputs), node.attributes.get("alpha", 0.01))


def _hard_sigmoid(at: Building, node: Node, inputs: Inputs) -> Value:
    slope, shift = node.attributes.get("alpha", 0.2), node.attributes.get("beta", 0.5)
    return at.draft.hard_sigmoid(node.name, value(inputs), slope, shift)


def _gelu(at: Building, node: Node, inputs: Inputs) -> Value:
    mode = node.attributes.get("approximate", "none")
    if mode not in ("none", "tanh"):
        raise TilewrightError(f"approximate is {mode!r:.40}")
    return at.draft.each(node.name, TanhGELU() if mode == "tanh" else GELU(), value(inputs))


def _each(layer: Layer) -> Maker:
    return lambda at, node, inputs: at.draft.each(node.name, layer, value(inputs))


def _elu(at: Building, node: Node, inputs: Inputs) -> Value:
    return at.draft.elu(node.name, value(inputs), node.attributes.get("alpha", 1.0))


def _celu(at: Building, node: Node, inputs: Inputs) -> Value:
    return at.draft.celu(node.name, value(inputs), node.attributes.get("alpha", 1.0))


def _selu(at: Building, node: Node, inputs: Inputs) -> Value:
    alpha, gamma = node.attributes.get("alpha", SELU[0]), node.attributes.get("gamma", SELU[1])
    return at.draft.elu(node.name, value(inputs), alpha, gamma)


def _negative(at: Building, node: Node, inputs: Inputs) -> Value:
    return at.draft.affine(node.name, value(inputs), np.array(-1.0), np.array(0.0))


def _absolute(at: Building, node: Node, inputs: Inputs) -> Value:
    return at.draft.absolute(node.name, value(inputs))


def _power(at: Building, node: Node, inputs: Inputs) -> Value:
    exponent = constant(inputs, 1)
    if exponent.size != 1:
        raise TilewrightError("several exponents; one for all is understood")
    return at.draft.power(node.name, value(inputs), float(exponent.reshape(())))


def _swish(at: Building, node: Node, inputs: Inputs) -> Value:
    if node.attributes.get("alpha", 1.0) != 1:
        raise TilewrightError("alpha is not 1")
    return at.draft.each(node.name, SiLU(), value(inputs))


def _log(at: Building, node: Node, inputs: Inputs) -> Value:
    return at.draft.logarithm(node.name, value(inputs))


def _greater(at: Building, node: Node, inputs: Inputs) -> Value:
    bound = constant(inputs, 1)
    if bound.size != 1:
        raise TilewrightError("compares with several numbers; one for all is understood")
    return at.draft.above(node.name, value(inputs), float(bound.reshape(())))


def _where(at: Building, node: Node, inputs: Inputs) -> Value:
    return at.draft.where(node.name, *(value(inputs, place) for place in range(3)))


def _softmax(at: Building, node: Node, inputs: Inputs) -> Value:
    axis = node.attributes.get("axis", 1 if at.opset < 13 else -1)
    return at.draft.softmax(node.name, value(inputs), axis)


def _log_softmax(at: Building, node: Node, inputs: Inputs) -> Value:
    if node.outputs[0] != at.output:
        raise TilewrightError("logarithms are understood of the last layer alone")
    at.draft.notes["output"] = f"probabilities, where {node.name} gives their logarithms"
    return _softmax(at, node, inputs)


def _plain() -> dict[str, Maker]:
    """Activations that are one node without settings: their layers know what it is called."""

    found = {}
    for kind in TYPES.values():
        if not issubclass(kind, Elementwise) or fields(kind) or "onnx" not in kind.forms:
            continue
        layer = kind()
        nodes = layer.onnx()
        if len(nodes) == 1 and not nodes[0].attributes and not nodes[0].constants:
            found[nodes[0].operator] = _each(layer)
    return found


MAKERS: dict[str, Maker] = {
    **_plain(), **SHAPES, **WINDOWS, "Abs": _absolute, "Add": _add,
    "BatchNormalization": _batch_norm, "Celu": _celu, "Clip": _clip, "Div": _divide, "Elu": _elu,
    "Erf": _each(Erf()), "Exp": _each(Exp()), "Gelu": _gelu, "Gemm": _gemm, "Greater": _greater,
    "HardSigmoid": _hard_sigmoid, "LeakyRelu": _leaky, "Log": _log, "LogSoftmax": _log_softmax,
    "MatMul": _matmul, "Max": _least, "Min": _most, "Mish": _each(Mish()), "Mul": _multiply,
    "Neg": _negative, "PRelu": _prelu, "Pow": _power, "Selu": _selu, "Softmax": _softmax,
    "Sub": _subtract, "Sum": _add, "Swish": _swish, "Where": _where,
}  # fmt: skip
