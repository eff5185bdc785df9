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
Both lead the first and the last place of every layer to the first and the last output: mistakes
like edges. Whatever is passed on can be made *larger or smaller* from layer to layer, by powers of
two: a layer that is right for numbers around one only gives itself away.

The layer looked at gets weights of one of these kinds:

- *sparse*: up to three to an output, none to some, of all bits: a rounded operand shows;
- *covering*: every input has a weight in some output, few have it in the same;
- *large weights* on inputs of zero and one, or *large inputs* on weights of ±1: whole numbers,
  in units of a power of two, whose sums are exact and fill the accumulator;
- *large single weights*, one to an output: exact even where activations are stored as operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.model.layers import Add, Concat, Convolution, Layer, Multiply, Shape, Softmax
from tilewright.model.network import Network, Stage
from tilewright.precision import Precision

Generator = np.random.Generator
Array = NDArray[Any]
# Inputs of a layer that belong to the same output, as (output, input) pairs of whole numbers.
Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]
FLOAT32_BITS = 24
SPREAD = 16  # of scores: the smallest probability is about 1e-7 then
SINGLE = "large single weights"
FAR = 512  # below zero, where exp gives nothing any more


def passing(
    network: Network,
    generator: Generator,
    sums: bool,
    bias: bool = True,
    bits: Precision | None = None,
    dead: float = 0.0,
) -> dict[str, Array]:
    """Weights with which every layer passes values on; biases are small, or zero.

    They are powers of two or, if a precision is given, of all bits of its operands. Some outputs
    have the other sign, and all scores do, but not where a ReLU would leave nothing of them: there,
    a share that is to be `dead`.
    """
    given: dict[str, Array] = {}
    # Of every stage, the signs of its channels, and how large they may be.
    signs = [np.ones(network.input.shape[0])]
    sizes = [1.0]
    for stage in network.stages[1:]:
        taken, size = [signs[source] for source in stage.sources], _size(stage, sizes)
        if stage.parameter_shapes:
            made = _passing(stage, generator, sums, bias, bits)
            weight = made[f"{stage.name}.weight"]
            negative = _negative(_met(network, stage), dead)
            signs.append(np.where(generator.random(len(weight)) < negative, -1.0, 1.0))
            both = signs[-1][:, None] * _before(stage, taken[0], weight.shape[:2])
            weight *= both.reshape(*weight.shape[:2], *[1] * (weight.ndim - 2)) / size
            for name, value in made.items():
                given[name] = value * _spread(network, stage)
            size = 1.0
        elif isinstance(stage.layer, Concat):
            signs.append(np.concatenate(taken))
        elif isinstance(stage.layer, Multiply):
            signs.append(_of_channels(stage, taken[0]) * _of_channels(stage, taken[1]))
        else:
            # What is added has the same sign everywhere, by `_negative`.
            signs.append(taken[0] if stage.layer.passes_negative else np.ones_like(taken[0]))
        sizes.append(size)
    return given


def _size(stage: Stage, sizes: list[float]) -> float:
    """The largest that a layer's inputs may be together or, if it takes one, alone."""
    taken = [sizes[source] for source in stage.sources]
    if isinstance(stage.layer, Multiply):
        return math.prod(taken)
    return 2.0 ** math.ceil(math.log2(sum(taken))) if isinstance(stage.layer, Add) else max(taken)


def _of_channels(stage: Stage, signs: Array) -> Array:
    """A sign for every channel of a product, or feature, of one for each or for several."""
    return np.repeat(signs, math.ceil(stage.output_shape[0] / len(signs)))[: stage.output_shape[0]]


def _before(stage: Stage, signs: Array, weights: tuple[int, int]) -> Array:
    """The sign of the input that each weight of a filter meets."""
    groups = stage.layer.groups if isinstance(stage.layer, Convolution) else 1
    filters, inputs = weights
    each = np.repeat(signs, groups * inputs // len(signs)).reshape(groups, inputs)
    return each[np.arange(filters) // (filters // groups)]


def alone(
    network: Network, stage: Stage, kind: str, precision: Precision, generator: Generator
) -> dict[str, Array]:
    """The same, but for one layer, whose weights are of a kind that `KINDS` names."""
    whole = kind.startswith("large")
    given = passing(network, generator, sums=kind == "covering", bias=not whole)
    shape = stage.parameter_shapes[f"{stage.name}.weight"]
    rows = KINDS[kind]((shape[0], math.prod(shape[1:])), precision, generator)
    # However the inputs are, which are no larger than one, the outputs are no larger either. Whole
    # numbers keep their common unit.
    most = np.abs(rows).sum(1, keepdims=True)
    rows = rows * _reciprocal(most.max() if whole else most) * _spread(network, stage)
    given[f"{stage.name}.weight"] = rows.reshape(shape)
    if f"{stage.name}.bias" in given and kind != SINGLE:
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
    if kind in ("large weights", SINGLE):
        return (generator.random(shape) < 0.3).astype(np.float32)
    if kind == "large inputs":
        bits = _input_bits(precision)
        return (generator.integers(0, 2**bits, shape) / 2.0**bits).astype(np.float32)
    values = np.abs(_mantissas(shape, precision, generator, _reach(precision)))
    return np.where(generator.random(shape) < 0.2, -values, values).astype(np.float32)


def within_one(network: Network, given: dict[str, Array], largest: float) -> dict[str, Array]:
    """The same weights for inputs of another size: the first layers with weights make up for it."""
    if largest == 0:
        return given
    # Layers whose output is as large as the image: nothing with weights is between.
    alike, made = {0}, dict(given)
    for stage in network.stages[1:]:
        if not alike.issuperset(stage.sources):
            continue
        if stage.parameter_shapes:
            name = f"{stage.name}.weight"
            made[name] = given[name] * 2.0 ** -math.ceil(math.log2(largest))
        else:
            alike.add(stage.index)
    return made


def resized(network: Network, given: dict[str, Array], size: int) -> dict[str, Array]:
    """The same weights for images 2**size as large, and all activations with them.

    Before a tanh and a softmax it is as much of this as they can tell apart. If the rest is larger
    than usual, all scores are far below zero; if it is huge, the first one alone.
    """
    made, sizes = dict(given), [size]
    for stage in network.stages[1:]:
        taken = [sizes[source] for source in stage.sources]
        now = sum(taken) if isinstance(stage.layer, Multiply) else max(taken)
        if math.isfinite(stage.layer.largest):
            now = min(now, math.ceil(math.log2(stage.layer.largest)))
        sizes.append(now)
        if not stage.parameter_shapes:
            continue
        met = _met(network, stage)
        fitting = [layer.fitting for layer in met if layer.fitting is not None]
        low, high = fitting[0] if fitting else (size, size)
        wanted = min(max(size, low), high)
        weight, bias = f"{stage.name}.weight", f"{stage.name}.bias"
        made[weight] = given[weight] * 2.0 ** (wanted - now)
        if bias in given:
            made[bias] = given[bias] * 2.0**wanted
        sizes[-1] = wanted
        if any(isinstance(layer, Softmax) for layer in met) and size > 0:
            if bias in given:
                made[bias][: 1 if size > SPREAD else None] -= FAR
            else:
                made[weight] = made[weight] * FAR / SPREAD
    return made


def _met(network: Network, stage: Stage) -> list[Layer]:
    """The layers that a layer's outputs meet next, picked by a pooling or not."""
    met: list[Layer] = []
    passing = {stage.index}
    for each in network.stages[stage.index + 1 :]:
        if passing.intersection(each.sources):
            if each.layer.passes_on:
                passing.add(each.index)
            else:
                met.append(each.layer)
    return met


def _negative(met: list[Layer], dead: float) -> float:
    """The share of outputs of the other sign, by the layers that they meet."""
    if any(isinstance(layer, Add) for layer in met):
        return 0.0  # what cancels does not arrive
    if all(layer.passes_negative for layer in met):
        return 1.0 if any(isinstance(layer, Softmax) for layer in met) else 0.5
    return dead


def _spread(network: Network, stage: Stage) -> int:
    """How much larger a layer's outputs are to be: before a softmax, SPREAD times."""
    return SPREAD if any(isinstance(layer, Softmax) for layer in _met(network, stage)) else 1


def _reciprocal(sizes: Array) -> Array:
    """A power of two with which no size is larger than one."""
    return 2.0 ** -np.ceil(np.log2(np.where(sizes > 0, sizes, 1.0)))


def _passing(
    stage: Stage, generator: Generator, sums: bool, bias: bool, bits: Precision | None
) -> dict[str, Array]:
    shapes = stage.parameter_shapes
    weight_name = f"{stage.name}.weight"
    shape = shapes[weight_name]
    weight = np.zeros(shape)
    pairs = _grouped_pairs(stage, shape, generator, sums)
    values = 1 if bits is None else np.abs(_mantissas(pairs[0].shape, bits, generator))
    if isinstance(stage.layer, Convolution):
        taps, ends = _taps(stage)
        chosen = taps[generator.integers(len(taps), size=len(pairs[0]))]
        chosen[:1], chosen[-1:] = ends  # where `_pairs` has the ends
        weight[(*pairs, *chosen.T)] = values
    else:
        weight[pairs] = values
    sizes = weight.reshape(shape[0], -1).sum(1).reshape(-1, *[1] * (weight.ndim - 1))
    given = {weight_name: weight * _reciprocal(sizes)}
    for name, size in shapes.items():
        if name != weight_name:
            given[name] = generator.integers(0, 4, size) / 16 if bias else np.zeros(size)
    return given


def _grouped_pairs(stage: Stage, shape: Shape, generator: Generator, every: bool) -> Pairs:
    """Those of every group of filters, one group after the other."""
    groups = stage.layer.groups if isinstance(stage.layer, Convolution) else 1
    each = shape[0] // groups
    found = [_pairs(each, shape[1], generator, every) for _ in range(groups)]
    outputs = [of + group * each for group, (of, _) in enumerate(found)]
    return np.concatenate(outputs), np.concatenate([inputs for _, inputs in found])


def _pairs(outputs: int, inputs: int, generator: Generator, every: bool) -> Pairs:
    """Which outputs take which inputs: each one, or, if `every`, as many as take in them all.

    The first pair is of the first output and input, the last of the last ones.
    """
    count = max(outputs, inputs) if every else outputs
    taken = generator.permutation(inputs)[np.arange(count) % inputs]
    takes = generator.permutation(outputs)[np.arange(count) % outputs]
    kept = (takes != 0) & (takes != outputs - 1) | every
    ends = np.array([0, outputs - 1]), np.array([0, inputs - 1])
    return (
        np.concatenate([ends[0][:1], takes[kept], ends[0][1:]]),
        np.concatenate([ends[1][:1], taken[kept], ends[1][1:]]),
    )


def _taps(stage: Stage) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places of the kernel that read the picture, not its padding, at most outputs; and the two at
    which the first and the last output read the first and the last of the picture, or nearest."""
    layer = stage.layer
    assert isinstance(layer, Convolution)
    along, ends = [], []
    for axis in range(2):
        size, out = stage.input_shape[1 + axis], stage.output_shape[1 + axis]
        starts = np.arange(out) * layer.stride[axis] - layer.padding[axis]
        places = starts[None, :] + layer.dilation[axis] * np.arange(layer.kernel[axis])[:, None]
        inside = ((places >= 0) & (places < size)).sum(1)
        along.append(np.flatnonzero(2 * inside > inside.max() - 1))
        nearest = (np.abs(places[:, 0]).argmin(), np.abs(places[:, -1] - (size - 1)).argmin())
        ends.append(nearest)
    return np.stack(np.meshgrid(*along, indexing="ij"), -1).reshape(-1, 2), np.array(ends).T


def _bits(precision: Precision) -> int:
    """Of an operand's mantissa."""
    if precision.operand_unit == 0:
        return FLOAT32_BITS
    return int(-math.log2(precision.operand_unit))


def _input_bits(precision: Precision) -> int:
    """Of large inputs: more than fp16 and TF32 hold, if these are not what is claimed."""
    return min(13, _bits(precision))


def _reach(precision: Precision) -> int:
    """The powers of two by which numbers next to each other differ."""
    return 3 if precision.largest < 2.0**FLOAT32_BITS else 12


def _mantissas(
    shape: tuple[int, ...], precision: Precision, generator: Generator, reach: int = 0
) -> Array:
    """Numbers of either sign, with all bits of an operand: from a half to one in size, or, one in
    four, down to 2**-reach of that."""
    bits = _bits(precision)
    whole = generator.integers(2 ** (bits - 1), 2**bits, shape)
    smaller = generator.integers(0, reach + 1, shape) * (generator.random(shape) < 0.25)
    made: Array = whole / 2.0 ** (bits + smaller) * generator.choice([-1, 1], shape)
    return made


def _sparse(shape: tuple[int, int], precision: Precision, generator: Generator) -> Array:
    rows = np.zeros(shape)
    for index, count in enumerate(generator.permutation(np.arange(shape[0]) % 4)):
        # Few outputs are precious: none of them is left without weights.
        terms = min(shape[1], int(count) if shape[0] > 4 else max(1, int(count)))
        places = generator.choice(shape[1], terms, replace=False)
        rows[index, places] = _mantissas((terms,), precision, generator, _reach(precision))
    return rows


def _covering(shape: tuple[int, int], precision: Precision, generator: Generator) -> Array:
    rows = np.zeros(shape)
    pairs = _pairs(*shape, generator, True)
    rows[pairs] = _mantissas(pairs[0].shape, precision, generator, _reach(precision))
    return rows


def _large_weights(shape: tuple[int, int], precision: Precision, generator: Generator) -> Array:
    """As large as sums of all of them are exact; the rows' signs are mixed, or all the same.

    Where so many are that each would have few bits, some have more and the rest are small.
    """
    exact = int(1 / precision.accumulator_unit) // (shape[1] + 10)
    enough = min(2 ** _bits(precision) - 1, max(exact, 2**15))
    if exact >= enough:
        rows = generator.integers(1, enough + 1, shape).astype(np.float64)
    else:
        small = max(1, exact // 2)
        many = generator.random(shape) < exact / enough / 4
        rows = np.where(
            many, generator.integers(1, enough + 1, shape), generator.integers(1, small + 1, shape)
        ).astype(np.float64)
    rows[::2] *= generator.choice([-1, 1], rows[::2].shape)
    return rows


def _large_inputs(shape: tuple[int, int], precision: Precision, generator: Generator) -> Array:
    """±1, as many as keep sums of large inputs exact."""
    left = int(1 / precision.accumulator_unit) >> (_input_bits(precision) + 4)
    kept = generator.random(shape) < left / shape[1]
    return generator.choice([-1.0, 1.0], shape) * kept


def _single(shape: tuple[int, int], precision: Precision, generator: Generator) -> Array:
    rows = np.zeros(shape)
    places = generator.integers(shape[1], size=shape[0])
    rows[np.arange(shape[0]), places] = _mantissas(shape[:1], precision, generator)
    return rows


KINDS: dict[str, Callable[..., Array]] = {
    "sparse": _sparse,
    "covering": _covering,
    "large weights": _large_weights,
    "large inputs": _large_inputs,
    SINGLE: _single,
}
