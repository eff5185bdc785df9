"""Fully connected layers over the batch, run in NumPy from their plan."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.fuse.cuda.instructions import (
    FLOAT,
    activate,
    halves,
    operand_columns,
    probabilities,
    values,
)
from tilewright.fuse.cuda.dense import Dense
from tilewright.model.network import Parameters

Array = NDArray[Any]


def run_dense(plan: Dense, parameters: Parameters, features: Array) -> Array:
    """Fully connected layers on many images at once, a block's after the other."""
    packed = plan.parameters(parameters)
    blocks = range(0, len(features), plan.images)
    return np.concatenate(
        [dense_block(plan, packed, features[first : first + plan.images]) for first in blocks]
    )


def dense_block(plan: Dense, packed: Array, features: Array) -> Array:
    """Rows of all layers but the first lie in two places of shared memory, used in turn."""
    arithmetic, count, last = plan.arithmetic, len(features), len(plan.layers)
    first_place, _ = plan.row_places
    shared = np.zeros(sum(plan.row_places), np.uint32)

    def rows_of(index: int) -> Array:
        """A view of what layer `index` reads."""
        at, row = first_place if index % 2 else 0, plan.row(index)
        return shared[at : at + plan.images * row].reshape(plan.images, row)[:count]

    for index, layer in enumerate(plan.layers):
        name, columns = layer.names[0], plan.all_columns(index)
        steps = plan.words // arithmetic.step if index == 0 else plan.steps(index)
        depth = steps * arithmetic.step
        at = plan.parameter_words[f"{name}.weight"]
        weights = operand_columns(packed[at : at + depth * columns * 8], steps, columns, arithmetic)
        at = plan.parameter_words[f"{name}.bias"]
        bias = packed[at : at + 8 * columns].view(FLOAT)
        words = features[:, :depth] if index == 0 else rows_of(index)[:, :depth]
        given = values(words, arithmetic.per_word)
        with np.errstate(over="ignore", invalid="ignore"):
            sums = (given @ weights.reshape(given.shape[1], -1) + bias)[:, : layer.summed[0]]
        found = activate(sums, layer.before + layer.after)
        if index + 1 == last:
            break
        target = rows_of(index + 1)
        if plan.emptied(index + 1):
            first, size = plan.gap(index + 1)
            target[:, first : first + size] = 0
        if arithmetic.per_word == 2:
            if found.shape[1] % 2:
                found = np.pad(found, ((0, 0), (0, 1)))
            words = halves(found[:, 0::2], found[:, 1::2])
        else:
            words = arithmetic.operands(found)
        target[:, : words.shape[1]] = words
    return probabilities(found) if plan.softmax else found
