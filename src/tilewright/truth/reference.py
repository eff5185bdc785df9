"""The truth: every layer in float64, and how far from it a right kernel may be.

Each kind of layer has its own in its file in `tilewright.model.layers`; what they have in common is
said here. `layer` returns a layer's output `value` and a `bound`: no correct kernel of the stated
precision, whatever order it adds in, is further from the value than the bound. The bound is
computed, not chosen:

- A sum of n products accumulated with unit roundoff u has an error of at most γ·Σ|w||x| with
  γ = n·u / (1 − n·u) (Higham, *Accuracy and Stability of Numerical Algorithms*, section 3.1).
  Products with a zero are exact and so is their addition: n counts the others, output by output.
  Operands that the precision does not hold (fp16, TF32) are rounded first: its roundoff twice.
- Where all operands are multiples of some power of two, and Σ|w||x| in these units fits the
  accumulator's mantissa, every partial sum is exact in any order: the bound is zero.
- Maxima, ReLU and its like are exact. tanh, exp, log and division may be off by what the OpenCL
  specification allows its full profile (5, 3, 3 and 2.5 ulp); CUDA and the CPU libraries promise no
  more. A softmax may be computed by any of the usual formulas: exp(x − max) over its sum, powers of
  two instead, or exp(x − log Σ exp).
- Numbers below the smallest normal one, operands and results, may be taken for zero.

A correct kernel here is one that adds up products. Algorithms that trade products for sums of
inputs (Winograd, FFT) have larger errors and are classes of their own, with bounds from their own
transforms (`tilewright.truth.fast`). Sums that leave the range of float32 on the way have no bound
at all.

An input that is itself uncertain by `error` (the output of the layer before) widens the bound
by what the layer can make of it, so that bounds can be carried through a whole network. Carried
bounds are worst cases and soon loose: layers are checked one by one wherever they can be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tilewright.model.layers import Convolution, Join, Pixels
from tilewright.model.layers.rounding import Array, Truth, step
from tilewright.model.network import Parameters, Stage
from tilewright.precision import FLOAT32, Precision
from tilewright.truth.fast import fast_bound

__all__ = ["Truth", "chain", "layer"]


def layer(
    stage: Stage,
    parameters: Parameters,
    x: NDArray[np.generic],
    error: Array | None = None,
    precision: Precision = FLOAT32,
    others: Sequence[Truth] = (),
) -> Truth:
    """One layer of a batch `x` whose values are uncertain by `error` (None: exact).

    `others` are the inputs after the first of a layer that takes several.
    """
    exact = np.asarray(x, np.float64)
    uncertain = np.zeros_like(exact) if error is None else error
    operation = stage.layer
    if isinstance(operation, Pixels) and x.dtype != np.uint8:
        return Truth(exact, uncertain)  # images that are float32 already enter as they are
    if isinstance(operation, Join):
        return operation.joined([Truth(exact, uncertain), *others], precision)
    truth = operation.truth(exact, uncertain, stage.weights(parameters), precision)
    if precision.fast is None or not isinstance(operation, Convolution):
        return truth
    if operation.groups > 1 or operation.dilation != (1, 1):
        return truth  # no fast algorithm is known for these, here
    return _faster(truth, stage, operation, parameters, exact, uncertain, precision)


def chain(
    stages: Sequence[Stage],
    parameters: Parameters,
    x: NDArray[np.generic] | Mapping[int, NDArray[np.generic]],
    precision: Precision = FLOAT32,
) -> list[Truth]:
    """Consecutive layers of a batch, the bounds carried from one to the next.

    `x` is what the first of them takes or, where layers take more that is made outside of them, all
    of that by the indices of the stages which made it.
    """
    first = stages[0]
    outside = x if isinstance(x, Mapping) else {(first.sources or (-1,))[0]: x}
    exact = {
        index: Truth(np.asarray(value, np.float64), np.zeros(value.shape))
        for index, value in outside.items()
    }
    made: dict[int, Truth] = {}
    truths: list[Truth] = []
    for stage in stages:
        if not stage.sources:  # the pixels, whose type counts
            truth = layer(stage, parameters, outside[-1], None, precision)
        else:
            taken, *others = (made.get(index) or exact[index] for index in stage.sources)
            truth = layer(stage, parameters, taken.value, taken.bound, precision, others)
        truths.append(truth)
        kept = truth.bound + _stored(truth, precision) if precision.stored else truth.bound
        made[stage.index] = Truth(truth.value, kept)
    return truths


def _stored(truth: Truth, precision: Precision) -> Array:
    """What rounding to an operand costs; nothing, if the value is certain and such a number."""
    size = np.abs(truth.value) + truth.bound
    kept = (truth.bound == 0) & precision.holds(truth.value)
    return np.where(kept, 0.0, precision.operand_unit * size + precision.operand_smallest)


def _faster(
    truth: Truth,
    stage: Stage,
    operation: Convolution,
    parameters: Parameters,
    x: Array,
    error: Array,
    precision: Precision,
) -> Truth:
    """The same by an algorithm that does not add up every product."""
    weight = parameters[f"{stage.name}.weight"].astype(np.float64)
    bias = parameters.get(f"{stage.name}.bias")
    # What is uncertain is no multiple of anything.
    steps = (0.0 if error.any() else step(x), step(weight))
    added = None if bias is None else bias.astype(np.float64)
    wider = fast_bound(operation, np.abs(x) + error, weight, added, precision, steps)
    return Truth(truth.value, truth.bound + wider)
