"""How far from the truth a convolution by a fast algorithm may be: a bound from its own transforms.

*Winograd.* Tiles of m x m outputs are Aᵀ[Σ (G g Gᵀ) ⊙ (Bᵀ d B)]A, summed over channels, with d a
tile of the input and g the weights. Whatever order each sum is taken in, the error is at most
γ·|Aᵀ|[Σ (|G||g||Gᵀ|) ⊙ (|Bᵀ||d||B|)]|A|, where γ counts the roundings that a product meets on its
way: two transforms of it, the product, the sum over channels, two transforms back (Higham, section
3.1, applied to each in turn; Barabasz, Anderson, Soodhalter, Gregg, *Error analysis and improving
the accuracy of Winograd convolution*, 2020). Where tiles begin is the kernel's choice: the bound is
the largest over all places that an output can have in its tile. Where transforms are dyadic (m = 2
has only halves) and the numbers whole and small enough, every step is exact, and the bound that of
a direct sum: zero.

*FFT.* Each of the three transforms has a relative error of 8·log2(N)·u in the 2-norm (Higham,
section 24.1), and an output is at most Σ ‖x‖₂‖g‖₂ over channels: the bound is that times what the
transforms and the sum over channels lose. It is the same for all outputs of a filter.

Layers that an algorithm is not for (Winograd: other kernels than its own, or another stride than 1)
are computed directly, and held to that.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tilewright.model.layers import Convolution
from tilewright.precision import UNIT, Precision, Transforms

Array = NDArray[np.float64]
FFT_FACTOR = 8  # of log2(N) roundings, for each transform
SMALLEST_NORMAL = 2.0**-126


def fast_bound(
    layer: Convolution,
    size: Array,
    weight: Array,
    bias: Array | None,
    precision: Precision,
    steps: tuple[float, float],
) -> Array | float:
    """What is added to the bound of a direct sum, for inputs of such sizes.

    `steps` are the powers of two that all inputs and all weights are multiples of.
    """
    if precision.fast is None:
        return 0.0
    added = np.zeros(1) if bias is None else np.abs(bias)[:, None, None]
    if precision.fast == "fft":
        return _fft(layer, size, np.abs(weight), added)
    transforms = precision.transforms(layer.kernel, layer.stride, layer.dilation, layer.groups)
    if transforms is None:
        return 0.0
    return _winograd(transforms, layer, size, np.abs(weight), added, steps)


def _fft(layer: Convolution, size: Array, weight: Array, bias: Array) -> Array:
    planes = np.sqrt((size**2).sum((2, 3))) @ np.sqrt((weight**2).sum((2, 3))).T
    around = (layer.padding[axis] + layer.padding[axis + 2] for axis in range(2))
    sides = (2 * (side + pad) for side, pad in zip(size.shape[2:], around, strict=True))
    roundings = 3 * FFT_FACTOR * math.log2(math.prod(sides)) + weight.shape[1] + 4
    bound: Array = roundings * UNIT * (planes[:, :, None, None] + bias)
    return bound


def _winograd(
    kind: Transforms,
    layer: Convolution,
    size: Array,
    weight: Array,
    bias: Array,
    steps: tuple[float, float],
) -> Array:
    inverse, filters, inputs = (np.abs(np.array(each)) for each in kind.matrices)
    more = kind.outputs - 1
    pads = [(layer.padding[axis] + more, layer.padding[axis + 2] + more) for axis in range(2)]
    padded = np.pad(size, ((0, 0), (0, 0), *pads))
    places = [side - len(inputs) + 1 for side in padded.shape[2:]]
    transformed = np.einsum("iu,fcuv,jv->ijfc", filters, weight, filters)
    # Of every tile that could begin anywhere: the sum over channels, before it goes back.
    sums = np.zeros((len(inputs), len(inputs), len(size), len(weight), *places))
    largest = 0.0
    for i, row in enumerate(inputs):
        down = sum(row[u] * padded[:, :, u : u + places[0]] for u in range(len(row)))
        for j, column in enumerate(inputs):
            tile = sum(column[v] * down[..., v : v + places[1]] for v in range(len(column)))
            largest = max(largest, float(np.max(tile)))
            sums[i, j] = np.einsum("fc,ncyx->nfyx", transformed[i, j], tile, optimize=True)
    height, width = (place - more for place in places)
    magnitude: Array = np.zeros((len(size), len(weight), height, width))
    for p in range(kind.outputs):
        for q in range(kind.outputs):
            tiles = sums[..., more - p : more - p + height, more - q : more - q + width]
            back = np.einsum("i,j,ijnfyx->nfyx", inverse[p], inverse[q], tiles, optimize=True)
            magnitude = np.maximum(magnitude, back)
    magnitude += bias
    in_rows = sum(int(np.count_nonzero(each, axis=1).max()) for each in (inverse, filters, inputs))
    roundings = 2 * in_rows + weight.shape[1] + 2
    bound: Array = roundings * UNIT / (1 - roundings * UNIT) * magnitude
    bound += roundings * len(inputs) ** 2 * SMALLEST_NORMAL * (1 + size.max() + weight.max())
    if kind.step is None:
        return bound
    step_x, step_weight = steps[0] * kind.step**2, steps[1] * kind.step**2
    if largest * UNIT > step_x or float(transformed.max()) * UNIT > step_weight:
        return bound
    return np.where(magnitude * UNIT <= step_x * step_weight * kind.step**2, 0.0, bound)
