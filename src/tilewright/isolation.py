"""Weights that let one layer be looked at alone, inside the whole of a network.

A rung that computes a network as one piece shows its end only, and rounding bounds carried through
many layers of real weights are empty: almost any probability lies within them. So every other layer
of weighted sums is made one that *passes values on*: each of its outputs is one input, or the mean
of a few, with weights that are powers of two. Nothing grows on the way and nothing vanishes: values
stay within one, where a tanh still tells them apart; before a softmax, whose own error is some ulp
of a probability, they are spread out. The bound at the end of the network is then little more than
that of the one layer which was left to itself.

Layers pass on in two ways. *Sums* take every input into some output, so that a mistake at any place
arrives. *Selections* take few, and nothing else adds to the bound, so that a small mistake shows.

The layer looked at gets weights of one of these kinds:

- *sparse*: up to three to an output, none to some, of all bits: a rounded operand shows;
- *covering*: every input has a weight in some output, few have it in the same;
- *large weights* on inputs of zero and one, or *large inputs* on weights of ±1: whole numbers,
  in units of a power of two, whose sums are exact and fill the accumulator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.model.layers import Convolution
from tilewright.model.network import Network, Stage
from tilewright.reference import Precision

Generator = np.random.Generator
Array = NDArray[Any]
# Inputs of a layer that belong to the same output, as (output, input) pairs of whole numbers.
Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]
FLOAT32_BITS = 24
SPREAD = 16  # of scores: the smallest probability is about 1e-7 then


def passing(
    network: Network, generator: Generator, sums: bool, bias: bool = True
) -> dict[str, Array]:
    """Weights with which every layer passes values on; biases are small, or zero."""
    given: dict[str, Array] = {}
    for stage in network.stages:
        if stage.parameter_shapes:
            for name, value in _passing(stage, generator, sums, bias).items():
                given[name] = value * _spread(network, stage)
    return given


def alone(
    network: Network, stage: Stage, kind: str, precision: Precision, generator: Generator
) -> dict[str, Array]:
    """The same, but for one layer, whose weights are of a kind that `KINDS` names."""
    whole = kind.startswith("large")
    given = passing(network, generator, sums=kind == "covering", bias=not whole)
    shape = stage.parameter_shapes[f"{stage.name}.weight"]
    rows = KINDS[kind]((shape[0], math.prod(shape[1:])), precision, generator)
    # However the inputs are, which are no larger than one, the outputs are no larger either.
    most = float(np.abs(rows).sum(1).max())
    scale = 2.0 ** -math.ceil(math.log2(most)) if most else 1.0
    rows = rows * scale * _spread(network, stage)
    given[f"{stage.name}.weight"] = rows.reshape(shape)
    if f"{stage.name}.bias" in given:
        given[f"{stage.name}.bias"] = (
            np.abs(rows).max() * generator.integers(-9, 10, shape[0])
            if whole
            else _mantissas(shape[:1], precision, generator) * _spread(network, stage) / 4
        )
    return given


def images(
    network: Network, kind: str, count: int, precision: Precision, generator: Generator
) -> NDArray[np.float32]:
    """Values up to one in size for the weights of a kind; most are positive, as ReLU takes them."""
    shape = (count, *network.input.shape)
    if kind == "large weights":
        return (generator.random(shape) < 0.3).astype(np.float32)
    if kind == "large inputs":
        bits = _input_bits(precision)
        return (generator.integers(0, 2**bits, shape) / 2.0**bits).astype(np.float32)
    values = np.abs(_mantissas(shape, precision, generator))
    return np.where(generator.random(shape) < 0.2, -values, values).astype(np.float32)


def within_one(network: Network, given: dict[str, Array], largest: float) -> dict[str, Array]:
    """The same weights for inputs of another size: the first layer with weights makes up for it."""
    first = next((stage for stage in network.stages if stage.parameter_shapes), None)
    if first is None or largest == 0:
        return given
    name = f"{first.name}.weight"
    return {**given, name: given[name] * 2.0 ** -math.ceil(math.log2(largest))}


def _spread(network: Network, stage: Stage) -> int:
    """How much larger a layer's outputs are to be: before a softmax, SPREAD times."""
    after = [each.kind for each in network.stages[stage.index + 1 :] if each.kind != "flatten"]
    return SPREAD if after[:1] == ["softmax"] else 1


def _passing(stage: Stage, generator: Generator, sums: bool, bias: bool) -> dict[str, Array]:
    shapes = stage.parameter_shapes
    weight_name = f"{stage.name}.weight"
    shape = shapes[weight_name]
    weight = np.zeros(shape)
    layer = stage.layer
    if isinstance(layer, Convolution):
        taps = _taps(stage)
        outputs, channels = _pairs(shape[0], shape[1], generator, sums)
        chosen = taps[generator.integers(len(taps), size=len(outputs))]
        weight[outputs, channels, chosen[:, 0], chosen[:, 1]] = 1
    else:
        weight[_pairs(shape[0], shape[1], generator, sums)] = 1
    most = int(weight.reshape(shape[0], -1).sum(1).max())
    given = {weight_name: weight * 2.0 ** -math.ceil(math.log2(most))}
    for name, size in shapes.items():
        if name != weight_name:
            given[name] = generator.integers(0, 4, size) / 16 if bias else np.zeros(size)
    return given


def _pairs(outputs: int, inputs: int, generator: Generator, every: bool) -> Pairs:
    """Which outputs take which inputs: each one, or, if `every`, as many as take in them all."""
    count = max(outputs, inputs) if every else outputs
    order = generator.permutation(max(inputs, 1))[np.arange(count) % inputs]
    return generator.permutation(outputs)[np.arange(count) % outputs], order


def _taps(stage: Stage) -> NDArray[np.int64]:
    """Places of the kernel that read the picture, not its padding, at most outputs."""
    layer = stage.layer
    assert isinstance(layer, Convolution)
    along = []
    for axis in range(2):
        size, out = stage.input_shape[1 + axis], stage.output_shape[1 + axis]
        starts = np.arange(out) * layer.stride[axis] - layer.padding[axis]
        places = starts[None, :] + np.arange(layer.kernel[axis])[:, None]
        inside = ((places >= 0) & (places < size)).sum(1)
        along.append(np.flatnonzero(2 * inside > inside.max() - 1))
    return np.stack(np.meshgrid(*along, indexing="ij"), -1).reshape(-1, 2)


def _bits(precision: Precision) -> int:
    """Of an operand's mantissa."""
    if precision.operand_unit == 0:
        return FLOAT32_BITS
    return int(-math.log2(precision.operand_unit))


def _input_bits(precision: Precision) -> int:
    """Of large inputs: more than fp16 and TF32 hold, if these are not what is claimed."""
    return min(13, _bits(precision))


def _mantissas(shape: tuple[int, ...], precision: Precision, generator: Generator) -> Array:
    """Numbers of either sign, from a half to one in size, with all bits of an operand."""
    bits = _bits(precision)
    mantissas = generator.integers(2 ** (bits - 1), 2**bits, shape) / 2.0**bits
    return np.where(generator.random(shape) < 0.5, -mantissas, mantissas)


def _sparse(shape: tuple[int, int], precision: Precision, generator: Generator) -> Array:
    rows = np.zeros(shape)
    for index, count in enumerate(generator.permutation(np.arange(shape[0]) % 4)):
        # Few outputs are precious: none of them is left without weights.
        terms = min(shape[1], int(count) if shape[0] > 4 else max(1, int(count)))
        places = generator.choice(shape[1], terms, replace=False)
        rows[index, places] = _mantissas((terms,), precision, generator)
    return rows


def _covering(shape: tuple[int, int], precision: Precision, generator: Generator) -> Array:
    rows = np.zeros(shape)
    pairs = _pairs(*shape, generator, True)
    rows[pairs] = _mantissas(pairs[0].shape, precision, generator)
    return rows


def _large_weights(shape: tuple[int, int], precision: Precision, generator: Generator) -> Array:
    """As large as sums of all of them are exact; the rows' signs are mixed, or all the same."""
    exact = int(1 / precision.accumulator_unit) // (shape[1] + 10)
    largest = max(1, min(2 ** _bits(precision) - 1, exact))
    rows = generator.integers(1, largest + 1, shape).astype(np.float64)
    rows[::2] *= generator.choice([-1, 1], rows[::2].shape)
    return rows


def _large_inputs(shape: tuple[int, int], precision: Precision, generator: Generator) -> Array:
    """±1, as many as keep sums of large inputs exact."""
    left = int(1 / precision.accumulator_unit) >> (_input_bits(precision) + 4)
    kept = generator.random(shape) < left / shape[1]
    return generator.choice([-1.0, 1.0], shape) * kept


KINDS: dict[str, Callable[..., Array]] = {
    "sparse": _sparse,
    "covering": _covering,
    "large weights": _large_weights,
    "large inputs": _large_inputs,
}
