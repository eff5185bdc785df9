"""A network's layers as the few operations a whole-network kernel is made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from tilewright.fuse.cuda.beside import Several, side_by_side
from tilewright.model.layers import (
    Add,
    AveragePool,
    Concat,
    Convolution,
    Elementwise,
    FullyConnected,
    Layer,
    MaxPool,
    Multiply,
    Pixels,
    Pooling,
    Shape,
    Softmax,
    Table,
    Take,
)
from tilewright.model.network import Stage

Kind = Literal["sum", "channels", "each", "join", "softmax"]
Pool = Literal["", "max", "average"]
# How values come to a kernel, and go from one.
Form = Literal["pixels", "words", "panels", "output"]


@dataclass(frozen=True)
class Window:
    """What part of a picture an output sees; `padding` is above and left of it, and so is `after`
    below and right, if that is not the same.

    Where taps are `apart`, `taps` counts what lies between them, too: as weights of zero. So are
    channels that a filter does not see where these are in `groups`.
    """

    taps: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    after: tuple[int, int] | None = None
    apart: tuple[int, int] = (1, 1)
    groups: int = 1

    @property
    def own_taps(self) -> tuple[int, int]:
        """Without what lies between them."""
        (down, across), (y, x) = self.taps, self.apart
        return (down - 1) // y + 1, (across - 1) // x + 1

    @property
    def around(self) -> tuple[int, int]:
        """Zeros that a picture needs on both sides, along y and x."""
        (top, left), (bottom, right) = self.padding, self.after or self.padding
        return max(top, bottom), max(left, right)


TWO_BY_TWO = Window((2, 2), (2, 2))


@dataclass(frozen=True)
class Geometry:
    """All of a sum that its plan depends on: what is found for one is good for all like it."""

    source: Shape
    summed: Shape
    window: Window
    pool: Pool  # of positions that lie beside each other
    folded: bool = False

    def __hash__(self) -> int:
        """Of what most differ in: it is looked up a hundred thousand times for a network."""
        return hash((self.source, self.summed))


@dataclass(frozen=True, eq=False)  # looked up by what it is: thousands of times in a deep network
class Operation:
    """Layers that are computed together.

    - `sum`: a convolution, or a fully connected layer as a convolution whose window is the whole
      picture; then activations `before`, 2x2 pooling if `pool` says so, or the values of another
      operation if some are `added`, and activations `after`.
    - `channels`: a convolution whose filters see one channel each, and activations `after`.
    - `each`: pooling over any window, or none, and activations `after`.
    - `join`: values of several operations, added, multiplied or behind each other, or chosen rows
      and columns of one, and activations `after`.
    - `softmax`: over all features, as a row of pixels, in the order channel, y, x.

    `takes` are the operations whose results it reads, by their places in the list; -1 are the
    pixels. `forms` is how each comes if another kernel made it, `gives` how its own result goes.
    """

    kind: Kind
    stages: tuple[Stage, ...]
    source: Shape  # picture: channels, height, width
    summed: Shape  # before pooling
    result: Shape
    window: Window = Window()
    pool: Pool = ""
    before: tuple[Elementwise, ...] = ()
    after: tuple[Elementwise, ...] = ()
    index: int = 0
    takes: tuple[int, ...] = (-1,)
    shapes: tuple[Shape, ...] = ()  # of what is taken
    added: bool = False
    sticks_out: bool = False  # some of a pooling's windows do
    forms: tuple[Form, ...] = ("pixels",)
    gives: Form = "output"
    # Whether sums are the only readers of its result; whether what it takes has other readers.
    only_sums: bool = False
    mixed: bool = False
    in_rows: bool = False  # it is read in rows that are longer than it is (`dense`)
    last_reader: int = -1
    direct: bool = False  # it reads what another kernel gave where that lies, in device memory
    folded: bool = False  # it sums four positions at once (`fold`)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(
            name
            for stage in self.stages
            for name in (stage.names if isinstance(stage, Several) else (stage.name,))
        )

    @property
    def connected(self) -> bool:
        """Whether it is a fully connected layer."""
        return bool(self.stages) and isinstance(self.stages[0].layer, FullyConnected)

    @cached_property
    def geometry(self) -> Geometry:
        pool: Pool = "" if self.folded else self.pool
        return Geometry(self.source, self.summed, self.window, pool, self.folded)

    @cached_property
    def alike(self) -> tuple[object, ...]:
        """All but its layers' names: operations with the same are planned the same."""
        layer = self.stages[0].layer if self.stages and self.kind != "sum" else None
        where = tuple(self.index - each for each in self.takes)
        return (
            self.kind, self.geometry, self.result, self.before, self.after, self.connected, layer,
            where, self.shapes, self.added, self.forms[1:], self.only_sums, self.mixed,
            self.in_rows,
        )  # fmt: skip

    @cached_property
    def activated(self) -> float:
        """What all its activations of a picture take, in cycles of vectors (`Elementwise`)."""
        every, results = math.prod(self.summed), math.prod(self.result)
        # Of a maximum they are taken once, if they keep order.
        once = self.pool == "max" and all(layer.keeps_order for layer in self.before)
        before = sum(layer.cycles for layer in self.before) * (results if once else every)
        return before + sum(layer.cycles for layer in self.after) * results

    @property
    def weights(self) -> int:
        seen = self.source[0] // self.window.groups
        return seen * self.summed[0] * math.prod(self.window.own_taps)


class OfOperation:
    """What a kernel of one operation is given."""

    operation: Operation

    @property
    def operations(self) -> tuple[Operation, ...]:
        return (self.operation,)

    @property
    def names(self) -> tuple[str, ...]:
        return self.operation.names

    @property
    def last(self) -> int:
        """The operation whose result it gives."""
        return self.operation.index

    @property
    def inputs(self) -> tuple[int, ...]:
        return self.operation.takes

    @property
    def input_shapes(self) -> tuple[Shape, ...]:
        return self.operation.shapes

    @property
    def given(self) -> Form:
        return self.operation.forms[0]


@dataclass(frozen=True)
class Layers:
    """All layers that compute something, in order, and what is known of who reads whom."""

    rest: Sequence[Stage]
    sources: dict[int, tuple[int, ...]]  # of a stage's index, without those that compute nothing
    readers: dict[int, int]  # how many read a stage's output

    def leads_on(self, at: int) -> bool:
        """Whether the layer after layer `at` is the only one that reads its output."""
        if at + 1 >= len(self.rest) or self.readers[self.rest[at].index] != 1:
            return False
        return self.rest[at].index in self.sources[self.rest[at + 1].index]

    def follows(self, at: int) -> bool:
        """Whether layer `at` takes the one before it, which has no other reader, and no more."""
        return self.leads_on(at - 1) and len(self.sources[self.rest[at].index]) == 1


def layers_of(stages: Sequence[Stage]) -> Layers:
    real: dict[int, int] = {}  # a stage's index: the index of the one that made its output
    rest, sources = [], {}
    readers: dict[int, int] = {}
    for stage in stages:
        taken = tuple(real.get(each, -1) for each in stage.sources)
        computes = stage.layer.computes and not isinstance(stage.layer, Pixels)
        real[stage.index] = stage.index if computes else taken[0] if taken else -1
        if computes:
            rest.append(stage)
            sources[stage.index] = taken
            readers[stage.index] = 0
            for each in taken:
                readers[each] = readers.get(each, 0) + 1
    return Layers(rest, sources, readers)


def operations(stages: Sequence[Stage], merge: bool = False) -> list[Operation]:
    """All layers but the input, in order; convolutions beside each other as one if they `merge`.
    Flattening is a matter of how weights are ordered."""
    layers = layers_of(side_by_side(stages) if merge else stages)
    # The operation that made a stage's output, and the picture that it is.
    made = {-1: -1}
    shapes = {-1: picture_shape(stages[0].input_shape)}
    found: list[Operation] = []

    def enter(operation: Operation, takes: tuple[int, ...]) -> None:
        index = len(found)
        taken = tuple(shapes[each] for each in takes)
        found.append(replace(operation, index=index, takes=takes, shapes=taken))
        shapes[index] = operation.result

    at = 0
    while at < len(layers.rest):
        stage = layers.rest[at]
        takes = tuple(made[each] for each in layers.sources[stage.index])
        source = shapes[takes[0]]
        operation = _next(layers, at, source)
        if operation.kind == "softmax" and layers.readers[layers.sources[stage.index][0]] > 1:
            # It reads floats, others do not.
            enter(identity(source), takes)
            takes = (len(found) - 1,)
        at += len(operation.stages)
        if operation.added:
            last = layers.rest[at - 1 - len(operation.after)]
            own = {each.index for each in operation.stages}
            others = layers.sources[last.index]
            takes += tuple(made[each] for each in others if each not in own)
        enter(operation, takes)
        if operation.kind == "softmax" and at < len(layers.rest):
            # Probabilities are floats; what comes next reads operands.
            enter(identity(operation.result), (len(found) - 1,))
        made[layers.rest[at - 1].index] = len(found) - 1
    if found and sum(-1 in each.takes for each in found) == 1:
        found[0] = _rows_as_channels(found[0], stages[0].layer)
    return found


def _rows_as_channels(first: Operation, pixels: Layer) -> Operation:
    """The same, but a convolution of pixels whose windows are as high as the picture: each row of
    each channel is a channel. Bytes lie in the same order, and so do weights.

    A step of a sum is in a row of taps; 70 rows of 7 taps of one channel are 70 steps that are
    nearly empty, and more rows than registers hold.
    """
    channels, height, width = first.source
    window, after = first.window, first.window.after or first.window.padding
    if (
        first.kind != "sum"
        or first.connected
        or not isinstance(pixels, Pixels)
        or pixels.specials
        or height == 1
        or window.taps[0] != height
        or (window.padding[0], after[0], window.groups) != (0, 0, 1)
        or window.own_taps != window.taps
    ):
        return first
    flat = channels * height, 1, width
    made = Window((1, window.taps[1]), (1, window.stride[1]), (0, window.padding[1]), (0, after[1]))
    return replace(first, source=flat, shapes=(flat,), window=made)


def identity(shape: Shape) -> Operation:
    """The same values once more."""
    return Operation("each", (), shape, shape, shape)


def with_copy(todo: Sequence[Operation], at: int) -> list[Operation]:
    """The same with a copy of what operation `at` takes first, which is read by nobody else; of the
    pixels, by all who read these."""
    taken = todo[at].takes[0]
    copy = replace(identity(todo[at].shapes[0]), index=at, takes=(taken,),
                   shapes=todo[at].shapes[:1])  # fmt: skip
    later = [
        _moved(each, at, taken if each is todo[at] or taken < 0 else None) for each in todo[at:]
    ]
    return [*todo[:at], copy, *later]


def with_pooling(todo: Sequence[Operation], at: int) -> list[Operation]:
    """The same with the pooling of operation `at`, a sum, as the next one."""
    both = todo[at]
    own = 1 + len(both.before)
    summed = replace(both, stages=both.stages[:own], result=both.summed, pool="", after=())
    pooling = Operation("each", both.stages[own:], both.summed, both.result, both.result,
                        TWO_BY_TWO, both.pool, after=both.after, index=at + 1, takes=(at,),
                        shapes=(both.summed,))  # fmt: skip
    later = (_moved(each, at + 1, at) for each in todo[at + 1 :])
    return [*todo[:at], summed, pooling, *later]


def _moved(operation: Operation, at: int, taken: int | None) -> Operation:
    """An operation behind one that was put in at `at`, which it takes instead of what was
    `taken`."""
    takes = tuple(at if place == taken else place + (place >= at) for place in operation.takes)
    return replace(operation, index=operation.index + 1, takes=takes)


def only_input(stages: Sequence[Stage]) -> Operation:
    """Nothing but the pixels' values, for a kernel that begins with something else."""
    shape = picture_shape(stages[0].input_shape)
    return replace(identity(shape), shapes=(shape,))


Source = Shape  # the picture at hand: a flattened one is still a picture
# The operation that begins with layer `at` of them.
CUDA: Table[Callable[[Layers, int, Source], Operation]] = Table("cuda")


def _next(layers: Layers, at: int, source: Source) -> Operation:
    return CUDA.find(layers.rest[at])(layers, at, source)


@CUDA.of(Softmax)
def _softmax(layers: Layers, at: int, source: Source) -> Operation:
    row = (1, 1, math.prod(source))
    return Operation("softmax", (layers.rest[at],), row, row, row)


@CUDA.of(MaxPool, AveragePool)
def _pooling(layers: Layers, at: int, source: Source) -> Operation:
    stage = layers.rest[at]
    pool, window = _pool(stage)
    result = picture_shape(stage.output_shape)
    after = _activations(layers, at + 1)
    stages = tuple(layers.rest[at : at + 1 + len(after)])
    return Operation("each", stages, source, result, result, window, pool, after=after,
                     sticks_out=_sticks_out(stage))  # fmt: skip


@CUDA.family(Elementwise)
def _elementwise(layers: Layers, at: int, source: Source) -> Operation:
    after = (_activation(layers, at), *_activations(layers, at + 1))
    stages = tuple(layers.rest[at : at + len(after)])
    return Operation("each", stages, source, source, source, after=after)


@CUDA.of(Add, Concat, Multiply, Take)
def _join(layers: Layers, at: int, source: Source) -> Operation:
    after = _activations(layers, at + 1)
    stages = tuple(layers.rest[at : at + 1 + len(after)])
    result = picture_shape(stages[0].output_shape)
    return Operation("join", stages, source, result, result, after=after)


@CUDA.of(Convolution)
def _convolution(layers: Layers, at: int, source: Source) -> Operation:
    stage = layers.rest[at]
    layer = stage.layer
    assert isinstance(layer, Convolution)  # it was entered for these
    after = layer.padding[2:]
    # With strides, what a tap and the next one read is in planes of their own (`patches`).
    down, across = (
        apart if stride == 1 else 1
        for apart, stride in zip(layer.dilation, layer.stride, strict=True)
    )
    window = Window(
        layer.extent, layer.stride, layer.padding[:2],
        None if after == layer.padding[:2] else after, (down, across),
    )  # fmt: skip
    if layer.groups == 1 or layer.groups != source[0]:
        return _sum(layers, at, source, replace(window, groups=layer.groups))
    summed = picture_shape(stage.output_shape)
    following = _activations(layers, at + 1)
    stages = tuple(layers.rest[at : at + 1 + len(following)])
    return Operation("channels", stages, source, summed, summed, window, after=following)


@CUDA.of(FullyConnected)
def _connected(layers: Layers, at: int, source: Source) -> Operation:
    return _sum(layers, at, source, Window((source[1], source[2])))


def _sum(layers: Layers, at: int, source: Source, window: Window) -> Operation:
    rest = layers.rest
    summed = result = picture_shape(rest[at].output_shape)
    before = _activations(layers, at + 1)
    end = at + 1 + len(before)
    pool: Pool = ""
    after: tuple[Elementwise, ...] = ()
    added = False
    if end < len(rest) and isinstance(rest[end].layer, Pooling) and layers.follows(end):
        found, pooled = _pool(rest[end])
        if pooled == TWO_BY_TWO and not _sticks_out(rest[end]):
            pool, result = found, picture_shape(rest[end].output_shape)
            after = _activations(layers, end + 1)
            end += 1 + len(after)
    elif rest[at].kind == "conv" and layers.leads_on(end - 1) and _adds_two(layers, end):
        added = True
        after = _activations(layers, end + 1)
        end += 1 + len(after)
    return Operation(
        "sum", tuple(rest[at:end]), source, summed, result, window, pool, before, after, added=added
    )


def _adds_two(layers: Layers, at: int) -> bool:
    """Whether layer `at` adds two pictures, none of them the pixels."""
    stage = layers.rest[at]
    return (
        type(stage.layer) is Add
        and len(stage.sources) == 2
        and len(stage.output_shape) == 3
        and -1 not in layers.sources[stage.index]
    )


def _activations(layers: Layers, at: int) -> tuple[Elementwise, ...]:
    """The activations that follow each other from layer `at` on."""
    found: list[Elementwise] = []
    while (
        at < len(layers.rest)
        and isinstance(layers.rest[at].layer, Elementwise)
        and layers.follows(at)
    ):
        found.append(_activation(layers, at))
        at += 1
    return tuple(found)


def _activation(layers: Layers, at: int) -> Elementwise:
    CUDA.find(layers.rest[at])  # refuses one that has no expression
    layer = layers.rest[at].layer
    assert isinstance(layer, Elementwise)
    return layer


def _pool(stage: Stage) -> tuple[Pool, Window]:
    CUDA.find(stage)  # refuses other poolings than these two
    layer = stage.layer
    assert isinstance(layer, Pooling)
    pool: Pool = "average" if isinstance(layer, AveragePool) else "max"
    return pool, Window(layer.size, layer.stride, layer.padding[:2])


def _sticks_out(stage: Stage) -> bool:
    assert isinstance(stage.layer, Pooling)
    return any(side > 0 for side in stage.layer.beyond(stage.input_shape))


def picture_shape(shape: Shape) -> Shape:
    """A row of features is a picture of one pixel."""
    return shape if len(shape) == 3 else (shape[0], 1, 1)
