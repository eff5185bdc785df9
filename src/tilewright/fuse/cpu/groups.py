"""The other layers as LLVM code, and the function around any group of a schedule.

A function reads activations from `%x` (and `%x1`, `%x2`, where it takes several), writes them to
`%out` and finds its weights behind `%w`: the biases first, then block by block of output channels.
It computes its units `%first` to `%last` (`units`); most layers have a single one. Winograd's
algorithm has memory to work in behind `%work`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from tilewright.fuse.cpu.chunks import winograd
from tilewright.fuse.cpu.code import Function, Value
from tilewright.fuse.cpu.convolution import convolution
from tilewright.fuse.cpu.dense import dense_of_few, dense_of_images
from tilewright.fuse.cpu.grouped import ConvolutionGroup, DenseGroup, Group, PlainGroup
from tilewright.fuse.cpu.joins import add_up, multiply, put_behind
from tilewright.fuse.cpu.pictures import Picture
from tilewright.fuse.cpu.places import names
from tilewright.fuse.cpu.pooling import pooling
from tilewright.fuse.cpu.taken import take
from tilewright.fuse.cpu.tiles import Target
from tilewright.fuse.cpu.winograd import WinogradGroup
from tilewright.model.layers import (
    Add,
    AveragePool,
    Concat,
    Elementwise,
    MaxPool,
    Multiply,
    Planar,
    Pooling,
    Softmax,
    Table,
    Take,
)
from tilewright.model.network import Stage

ARGUMENTS = (
    "ptr noalias readonly %x", "ptr noalias %out", "ptr noalias readonly %w", "i64 %first",
    "i64 %last",
)  # fmt: skip

# Vectors of a softmax at most that stay in registers. Chosen: half of 16.
IN_REGISTERS = 8


def units(group: Group, after: Picture) -> int:
    """Into how many parts a group can be cut: rows of tiles, blocks of outputs."""
    if isinstance(group, DenseGroup) and group.unit == 1:
        return 1
    if isinstance(group, DenseGroup) or (isinstance(group, ConvolutionGroup) and group.by_blocks):
        return sum(block.count for block in group.blocks)
    if isinstance(group, ConvolutionGroup | WinogradGroup):
        return group.rows[-1].last if group.rows else 1
    return after.height if isinstance(group.stages[0].layer, Planar) else 1


def takes_several(group: Group) -> bool:
    """Whether a group works on several images that come one by one: it is told how many."""
    return isinstance(group, DenseGroup) and group.unit > 1 and group.images > 1


def group_function(
    group: Group, name: str, target: Target, attributes: str, before: Sequence[Picture],
    after: Picture, apart: int = 0,
) -> str:  # fmt: skip
    """The code of a group, from activations that lie like `before` to those like `after`; those of
    several images lie so far `apart`."""
    others = (f"ptr noalias readonly {other}" for other in names(len(before) + 1)[1:-1])
    memory = ("ptr noalias %work",) if isinstance(group, WinogradGroup) else ()
    several = ("i64 %images",) if takes_several(group) else ()
    arguments = (*ARGUMENTS, *others, *memory, *several)
    f = Function(f"internal void @{name}", arguments, target, f"noinline {attributes}")
    if isinstance(group, ConvolutionGroup):
        convolution(f, group, before, after)
    elif isinstance(group, WinogradGroup):
        winograd(f, group, before, after)
    elif isinstance(group, DenseGroup):
        if group.unit == 1:
            dense_of_images(f, group, before[0], after)
        else:
            dense_of_few(f, group, before[0], after, apart)
    else:
        _plain(f, group, before, after)
    return f.text()


def _plain(f: Function, group: PlainGroup, before: Sequence[Picture], after: Picture) -> None:
    (stage,) = group.stages
    LLVM.find(stage)(f, stage, group.unit, before, after)


# The layers that can be a group of their own.
LLVM: Table[Callable[[Function, Stage, int, Sequence[Picture], Picture], None]] = Table("llvm")


@LLVM.family(Elementwise)
def _elementwise(
    f: Function, stage: Stage, unit: int, before: Sequence[Picture], after: Picture
) -> None:
    layer = stage.layer
    assert isinstance(layer, Elementwise)  # it was entered for these
    with f.loop(0, before[0].size, f.lanes) as i:
        f.store(layer.llvm(f, f.load("%x", i)), "%out", i)


@LLVM.of(Softmax)
def _softmax(
    f: Function, stage: Stage, unit: int, before: Sequence[Picture], after: Picture
) -> None:
    (_softmax_of_images if unit == 1 else _softmax_of_one)(f, before[0])


@LLVM.of(MaxPool, AveragePool)
def _pooling(
    f: Function, stage: Stage, unit: int, before: Sequence[Picture], after: Picture
) -> None:
    assert isinstance(stage.layer, Pooling)  # it was entered for these
    pooling(f, stage.layer, unit, before[0], after)


@LLVM.of(Take)
def _take(f: Function, stage: Stage, unit: int, before: Sequence[Picture], after: Picture) -> None:
    assert isinstance(stage.layer, Take)  # it was entered for these
    take(f, stage.layer, unit, before[0], after)


@LLVM.of(Add)
def _add(f: Function, stage: Stage, unit: int, before: Sequence[Picture], after: Picture) -> None:
    add_up(f, unit, before, after)


@LLVM.of(Multiply)
def _multiply(
    f: Function, stage: Stage, unit: int, before: Sequence[Picture], after: Picture
) -> None:
    multiply(f, Multiply.reach(stage.input_shapes), unit, before, after)


@LLVM.of(Concat)
def _concat(
    f: Function, stage: Stage, unit: int, before: Sequence[Picture], after: Picture
) -> None:
    put_behind(f, unit, before, after)


def _softmax_of_images(f: Function, picture: Picture) -> None:
    with f.carried_loop(0, picture.size, [f.constant(float("-inf"))], f.lanes) as (i, now, largest):
        now[0] = f.maximum(now[0], f.load("%x", i))
    with f.carried_loop(0, picture.size, [f.constant(0)], f.lanes) as (i, now, total):
        weight = f.exp(f.binary("fsub", f.load("%x", i), largest[0]))
        f.store(weight, "%out", i)
        now[0] = f.binary("fadd", now[0], weight)
    _divide(f, picture.size, total[0])


def _softmax_of_one(f: Function, picture: Picture) -> None:
    """The same across lanes. Those beyond the channels count as the smallest, then as nothing."""
    vectors = picture.size // f.lanes
    if vectors <= IN_REGISTERS and picture.step == picture.size:
        _softmax_in_registers(f, picture)
        return

    def real(i: Value) -> Value:
        """Which lanes of the vector at `i` are channels."""
        return f.below(f.op(f"urem i64 {i}, {picture.step}"), picture.channels)

    smallest = f.constant(float("-inf"))
    with f.carried_loop(0, picture.size, [smallest], f.lanes) as (i, now, largest):
        now[0] = f.maximum(now[0], f.select(real(i), f.load("%x", i), smallest))
    highest = f.across(f.maximum, largest[0])
    with f.carried_loop(0, picture.size, [f.constant(0)], f.lanes) as (i, now, sums):
        weight = f.exp(f.binary("fsub", f.load("%x", i), highest))
        weight = f.select(real(i), weight, f.constant(0))
        f.store(weight, "%out", i)
        now[0] = f.binary("fadd", now[0], weight)
    _divide(f, picture.size, f.across(f.sum, sums[0]))


def _softmax_in_registers(f: Function, picture: Picture) -> None:
    """The same of so few vectors that none is read twice."""
    vectors = range(0, picture.size, f.lanes)

    def real(i: int, value: Value, otherwise: float) -> Value:
        """A vector with its lanes that are no channels replaced."""
        if i + f.lanes <= picture.channels:
            return value
        return f.select(f.below(str(i), picture.channels), value, f.constant(otherwise))

    values = [real(i, f.load("%x", i), float("-inf")) for i in vectors]
    highest = f.across(f.maximum, reduce(f.maximum, values))
    weights = [
        real(i, f.exp(f.binary("fsub", value, highest)), 0)
        for i, value in zip(vectors, values, strict=True)
    ]
    total = f.across(f.sum, reduce(f.sum, weights))
    for i, weight in zip(vectors, weights, strict=True):
        f.store(f.binary("fdiv", weight, total), "%out", i)


def _divide(f: Function, size: int, total: Value) -> None:
    with f.loop(0, size, f.lanes) as i:
        f.store(f.binary("fdiv", f.load("%out", i), total), "%out", i)
