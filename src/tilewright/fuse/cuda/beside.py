"""Convolutions beside each other, whose results are put behind each other: one convolution.

As in SqueezeNet, where 1x1 and 3x3 read the same picture. Each would read it, each write its share,
and a kernel of its own would put these together; as one, what follows can follow in the same
kernel. Smaller kernels have weights of zero around them, as taps that are apart have between them:
what is not finite reaches whatever these zeros meet.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.model.layers import Concat, Convolution, Elementwise, Shape
from tilewright.model.network import Parameters, Stage

MOST_WORK = 2.2  # times the multiply-adds of all, apart


@dataclass(frozen=True)
class Several(Stage):
    """A layer that stands for several, named as the first of them."""

    others: tuple[str, ...] = ()  # the other layers' names

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.others)


@dataclass(frozen=True)
class Beside(Several):
    """A convolution that is several."""

    parts: tuple[Stage, ...] = ()

    def parameters(self, given: Parameters) -> dict[str, NDArray[np.float32]]:
        """Its weights and biases of theirs."""
        layer = self.layer
        assert isinstance(layer, Convolution)
        weight = np.zeros((layer.filters, self.input_shape[0], *layer.kernel), np.float32)
        bias = np.zeros(layer.filters, np.float32)
        first = 0
        for part in self.parts:
            own, roles = part.layer, part.weights(given)
            assert isinstance(own, Convolution)
            filters = slice(first, first + own.filters)
            # Its own taps, as far apart as they are, from where its window begins.
            y, x = (layer.padding[axis] - own.padding[axis] for axis in (0, 1))
            rows = slice(y, y + own.extent[0], own.dilation[0])
            columns = slice(x, x + own.extent[1], own.dilation[1])
            weight[filters, :, rows, columns] = roles["weight"]
            if own.bias:
                bias[filters] = roles["bias"]
            first += own.filters
        return {f"{self.name}.weight": weight, f"{self.name}.bias": bias}


def with_parameters(
    stages: Sequence[Stage], given: Parameters, arithmetic: Arithmetic
) -> Parameters:
    """A network's parameters, and those of convolutions that are several."""
    found: dict[str, NDArray[np.float32]] = {}
    for stage in stages:
        if isinstance(stage, Beside):
            for part in stage.parts:  # by its own name
                arithmetic.check_weights(part.name, part.weights(given)["weight"])
            found |= stage.parameters(given)
    return {**given, **found}


def side_by_side(stages: Sequence[Stage]) -> list[Stage]:
    """The same layers, with one convolution wherever several can be one."""
    found = list(stages)
    for stage in stages:
        if type(stage.layer) is Concat and len(stage.output_shape) == 3:
            found = _merged(found, stage)
    return found


@dataclass(frozen=True)
class _Chain:
    """A convolution and the activations after it, read by nobody else."""

    convolution: Stage
    activations: tuple[Stage, ...]

    @property
    def layer(self) -> Convolution:
        assert isinstance(self.convolution.layer, Convolution)
        return self.convolution.layer

    @property
    def stages(self) -> tuple[Stage, ...]:
        return self.convolution, *self.activations


def _merged(stages: list[Stage], concat: Stage) -> list[Stage]:
    known = {stage.index: stage for stage in stages}
    readers = Counter(each for stage in stages for each in stage.sources)
    # As it takes them by now.
    concat = known[concat.index]
    chains = [_chain(known, readers, each) for each in concat.sources]
    if any(each is None for each in chains):
        return stages
    several = [each for each in chains if each]
    layer = _one_for(several, concat.output_shape)
    if layer is None:
        return stages
    first, shape = several[0], concat.output_shape
    gone = {each.index for chain in several for each in chain.stages} | {concat.index}
    # Each stands for those in its place of the other chains; the last one also for what is joined.
    others = [
        tuple(each.name for each in alike)
        for alike in zip(*(chain.stages for chain in several[1:]), strict=True)
    ]
    others[-1] += (concat.name,)
    begin = first.convolution
    made: list[Stage] = [
        Beside(begin.index, begin.name, layer, begin.input_shapes, shape, begin.sources, others[0],
               tuple(each.convolution for each in several)),
        *(Several(each.index, each.name, each.layer, (shape,), shape, each.sources, names)
          for each, names in zip(first.activations, others[1:], strict=True)),
    ]  # fmt: skip
    last = made[-1].index
    at = min(number for number, each in enumerate(stages) if each.index in gone)
    left = [
        replace(each, sources=tuple(last if one == concat.index else one for one in each.sources))
        if concat.index in each.sources
        else each
        for each in stages
        if each.index not in gone
    ]
    return [*left[:at], *made, *left[at:]]


def _chain(known: dict[int, Stage], readers: Counter[int], last: int) -> _Chain | None:
    activations: list[Stage] = []
    while (stage := known.get(last)) is not None and readers[last] == 1:
        if type(stage.layer) is Convolution:
            return None if isinstance(stage, Beside) else _Chain(stage, tuple(activations[::-1]))
        if not isinstance(stage.layer, Elementwise):
            return None
        activations.append(stage)
        (last,) = stage.sources
    return None


def _one_for(chains: Sequence[_Chain], shape: Shape) -> Convolution | None:
    """A convolution with the filters of all, if they can be one's and that is not far more work."""
    first = chains[0]
    activations = [tuple(each.layer for each in chain.activations) for chain in chains]
    if any(
        chain.convolution.sources != first.convolution.sources
        or chain.layer.stride != first.layer.stride
        or chain.layer.groups != 1
        or own != activations[0]
        for chain, own in zip(chains, activations, strict=True)
    ):
        return None
    extent, before, after = [], [], []
    for axis, (size, out) in enumerate(
        zip(first.convolution.input_shape[1:], shape[1:], strict=True)
    ):
        begin = max(chain.layer.padding[axis] for chain in chains)
        reach = max(begin - each.layer.padding[axis] + each.layer.extent[axis] for each in chains)
        before.append(begin)
        extent.append(reach)
        after.append(max(0, (out - 1) * first.layer.stride[axis] + reach - size - begin))
    apart = sum(chain.layer.filters * math.prod(chain.layer.kernel) for chain in chains)
    if shape[0] * math.prod(extent) > MOST_WORK * apart:
        return None
    made = Convolution(shape[0], (extent[0], extent[1]), stride=first.layer.stride,
                       padding=(before[0], before[1], after[0], after[1]),
                       bias=any(chain.layer.bias for chain in chains))  # fmt: skip
    # What is left over at the end of a row may differ: the picture may not.
    return made if made.output_shape(first.convolution.input_shape) == shape else None
