"""Every layer as plain loops, compiled by Numba: the arithmetic of `serial` and `threads`.

Each kernel computes the jobs `first` to `last` of its layer, a job being an independent part of the
output: a plane of a picture, a feature, an image. `serial` runs all jobs on one core; `threads`
gives every core its share. No call lasts long: Python answers Ctrl-C between two of them. Sums are
kept in float32. `contract` lets the compiler fuse a multiply and an add, nothing else: the order of
additions stays as written. NaN comes through: `max` of Python would lose it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from tilewright.model.layers import (
    Add,
    AveragePool,
    Concat,
    Convolution,
    Elementwise,
    FullyConnected,
    MaxPool,
    Multiply,
    Pixels,
    Pooling,
    Softmax,
    Table,
    Take,
)
from tilewright.model.network import Parameters, Stage, Stages
from tilewright.rungs.cpu.kept import Kept
from tilewright.threads import share

Array = NDArray[np.float32]
# Without a way in for C, which nobody takes and which is a sixth of what is compiled.
NUMBA: dict[str, Any] = {"nogil": True, "fastmath": {"contract"}, "no_cfunc_wrapper": True}
# Operations of one call at most, about a nanosecond each: a tenth of a second.
LONGEST_CALL = 100_000_000
# What a value takes beside its sum, at most: tanh and exp are the dearest.
VALUE_OPERATIONS = 32


def compiled(function: Callable[..., None], *inside: Callable[..., Any]) -> Any:
    """Machine code on first use, kept on disk for the next start where there is a place for it.

    `inside` are other functions that become a part of it.
    """
    made: Any = numba.njit(**NUMBA)(function)
    made._cache = Kept(function, *inside)
    return made


@compiled
def pixels(
    x: Any, out: Array, first: int, last: int, scales: NDArray[Any], shifts: NDArray[Any]
) -> None:
    """A job is one image."""
    each = x.shape[1] // len(scales)
    for image in range(first, last):
        for c in range(len(scales)):
            for i in range(c * each, (c + 1) * each):
                out[image, i] = np.float32(x[image, i] * scales[c] + shifts[c])


@compiled
def convolution(
    x: Array, out: Array, first: int, last: int,
    weight: Array, bias: Array, stride: tuple[int, int], padding: tuple[int, int],
    dilation: tuple[int, int], groups: int,
) -> None:  # fmt: skip
    """A job is one output plane: one filter over one image."""
    _, filters, height, width = out.shape
    _, _, input_height, input_width = x.shape
    _, channels, kernel_height, kernel_width = weight.shape
    for job in range(first, last):
        n, f = job // filters, job % filters
        before = f // (filters // groups) * channels
        for y in range(height):
            for column in range(width):
                total = bias[f]
                for c in range(channels):
                    for ky in range(kernel_height):
                        iy = y * stride[0] + ky * dilation[0] - padding[0]
                        if iy < 0 or iy >= input_height:
                            continue
                        for kx in range(kernel_width):
                            ix = column * stride[1] + kx * dilation[1] - padding[1]
                            if ix < 0 or ix >= input_width:
                                continue
                            total += x[n, before + c, iy, ix] * weight[f, c, ky, kx]
                out[n, f, y, column] = total


@compiled
def max_pool(
    x: Array, out: Array, first: int, last: int,
    size: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int],
) -> None:  # fmt: skip
    """A job is one plane: one channel of one image. What windows cover outside is left out."""
    _, channels, height, width = out.shape
    _, _, input_height, input_width = x.shape
    for job in range(first, last):
        n, c = job // channels, job % channels
        for y in range(height):
            top = y * stride[0] - padding[0]
            for column in range(width):
                left = column * stride[1] - padding[1]
                best = x[n, c, max(top, 0), max(left, 0)]
                for iy in range(max(top, 0), min(top + size[0], input_height)):
                    for ix in range(max(left, 0), min(left + size[1], input_width)):
                        value = x[n, c, iy, ix]
                        if value > best or value != value:  # sooner than `np.maximum`
                            best = value
                out[n, c, y, column] = best


@compiled
def average_pool(
    x: Array, out: Array, first: int, last: int,
    size: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int], counts: Array,
) -> None:  # fmt: skip
    """A job is one plane: one channel of one image."""
    _, channels, height, width = out.shape
    _, _, input_height, input_width = x.shape
    for job in range(first, last):
        n, c = job // channels, job % channels
        for y in range(height):
            top = y * stride[0] - padding[0]
            for column in range(width):
                left = column * stride[1] - padding[1]
                total = np.float32(0)
                for iy in range(max(top, 0), min(top + size[0], input_height)):
                    for ix in range(max(left, 0), min(left + size[1], input_width)):
                        total += x[n, c, iy, ix]
                out[n, c, y, column] = total / counts[y, column]


@compiled
def take(
    x: Array, out: Array, first: int, last: int, rows: NDArray[Any], columns: NDArray[Any]
) -> None:
    """A job is one plane: one channel of one image."""
    channels = out.shape[1]
    for job in range(first, last):
        n, c = job // channels, job % channels
        for y in range(len(rows)):
            for column in range(len(columns)):
                out[n, c, y, column] = x[n, c, rows[y], columns[column]]


@compiled
def add(x: Array, out: Array, first: int, last: int, *others: Array) -> None:
    """A job is one image."""
    for image in range(first, last):
        for i in range(x.shape[1]):
            out[image, i] = x[image, i]
        for other in others:
            for i in range(x.shape[1]):
                out[image, i] += other[image, i]


@compiled
def multiply(
    x: Array, out: Array, first: int, last: int, each: int, count: int, other: Array
) -> None:
    """A job is one image. Number i // each % count of the second input is for value i."""
    for image in range(first, last):
        for i in range(x.shape[1]):
            out[image, i] = x[image, i] * other[image, i // each % count]


@compiled
def concat(x: Array, out: Array, first: int, last: int, *others: Array) -> None:
    """A job is one image."""
    for image in range(first, last):
        for i in range(x.shape[1]):
            out[image, i] = x[image, i]
        place = x.shape[1]
        for other in others:
            for i in range(other.shape[1]):
                out[image, place + i] = other[image, i]
            place += other.shape[1]


@compiled
def fully_connected(
    x: Array, out: Array, first: int, last: int, weight: Array, bias: Array
) -> None:
    """A job is one output of one image."""
    _, outputs = out.shape
    for job in range(first, last):
        n, o = job // outputs, job % outputs
        total = bias[o]
        for i in range(weight.shape[1]):
            total += x[n, i] * weight[o, i]
        out[n, o] = total


@compiled
def softmax(x: Array, out: Array, first: int, last: int) -> None:
    """A job is one image. The largest score is taken off first, so that exp cannot overflow."""
    for n in range(first, last):
        largest = x[n, 0]
        for i in range(x.shape[1]):
            largest = np.maximum(largest, x[n, i])
        total = np.float32(0)
        for i in range(x.shape[1]):
            out[n, i] = np.exp(x[n, i] - largest)
            total += out[n, i]
        for i in range(x.shape[1]):
            out[n, i] /= total


@dataclass(frozen=True)
class Loops:
    """A layer's kernel with its settings, how many jobs one image makes, and how many a call.

    `rows`: it is given every image as a row, whatever its shape, and so is compiled once for all.
    """

    kernel: Callable[..., None]
    settings: tuple[Any, ...]
    jobs: int
    piece: int
    rows: bool = False

    def arrays(self, *given: Any) -> list[Any]:
        """As the kernel takes them."""
        if not self.rows:
            return list(given)
        return [each.reshape(len(each), math.prod(each.shape[1:])) for each in given]

    def on(self, cores: int) -> Callable[..., None]:
        """All jobs of a batch, divided among so many cores."""

        def run(x: Any, out: Array, *others: Array) -> None:
            before, after, *more = self.arrays(x, out, *others)

            def work(first: int, last: int) -> None:
                self.kernel(before, after, first, last, *self.settings, *more)

            if cores > 1:
                work(0, 0)  # compiled on this thread, if need be, where Ctrl-C is seen meanwhile
            share(work, len(x) * self.jobs, cores, self.piece)

        return run


def loops_for(stages: Stages, parameters: Parameters) -> Loops:
    """The loops of a single stage."""
    (stage,) = stages
    kernel, settings, jobs = LOOPS.find(stage)(stage, stage.layer, parameters)
    piece = max(1, LONGEST_CALL * jobs // _operations(stage))
    return Loops(kernel, settings, jobs, piece, rows=kernel not in OF_PICTURES)


# Kernels that look at rows and columns of pictures.
OF_PICTURES = (convolution, max_pool, average_pool, take)

# A kernel, its settings, and how many jobs one image makes.
Chosen = tuple[Callable[..., None], tuple[Any, ...], int]
LOOPS: Table[Callable[[Stage, Any, Parameters], Chosen]] = Table("loops")


@LOOPS.of(Pixels)
def _pixels(stage: Stage, layer: Pixels, parameters: Parameters) -> Chosen:
    return pixels, (np.array(layer.scales), np.array(layer.shifts)), 1


@LOOPS.of(Convolution)
def _convolution(stage: Stage, layer: Convolution, parameters: Parameters) -> Chosen:
    weight, bias = weight_and_bias(stage.name, parameters)
    geometry = (layer.stride, layer.padding[:2], layer.dilation, layer.groups)
    return convolution, (weight, bias, *geometry), layer.filters


@LOOPS.of(MaxPool, AveragePool)
def _pooling(stage: Stage, layer: Pooling, parameters: Parameters) -> Chosen:
    window = (layer.size, layer.stride, layer.padding[:2])
    if isinstance(layer, AveragePool):
        counts = layer.counts(stage.input_shape).astype(np.float32)
        return average_pool, (*window, counts), stage.output_shape[0]
    return max_pool, window, stage.output_shape[0]


@LOOPS.of(Take)
def _take(stage: Stage, layer: Take, parameters: Parameters) -> Chosen:
    return take, (np.array(layer.rows), np.array(layer.columns)), stage.output_shape[0]


@LOOPS.of(Add)
def _add(stage: Stage, layer: Add, parameters: Parameters) -> Chosen:
    return add, (), 1


@LOOPS.of(Multiply)
def _multiply(stage: Stage, layer: Multiply, parameters: Parameters) -> Chosen:
    first, second = stage.input_shapes
    each = math.prod(first[1:]) if layer.reach((first, second)) == "channel" else 1
    return multiply, (each, math.prod(second)), 1


@LOOPS.of(Concat)
def _concat(stage: Stage, layer: Concat, parameters: Parameters) -> Chosen:
    return concat, (), 1


@LOOPS.of(FullyConnected)
def _fully_connected(stage: Stage, layer: FullyConnected, parameters: Parameters) -> Chosen:
    return fully_connected, weight_and_bias(stage.name, parameters), layer.outputs


@LOOPS.of(Softmax)
def _softmax(stage: Stage, layer: Softmax, parameters: Parameters) -> Chosen:
    return softmax, (), 1


@LOOPS.family(Elementwise)
def _elementwise(stage: Stage, layer: Elementwise, parameters: Parameters) -> Chosen:
    assert layer.function is not None  # it has the form
    return elementwise(layer.function), layer.settings, 1


@cache
def elementwise(function: Callable[..., Any]) -> Callable[..., None]:
    """Loops around the function of a kind; a job is one image."""
    scalar = numba.njit(**NUMBA, no_cpython_wrapper=True)(function)

    def each(x: Array, out: Array, first: int, last: int, *settings: Any) -> None:
        for image in range(first, last):
            for i in range(x.shape[1]):
                out[image, i] = scalar(x[image, i], *settings)

    made: Callable[..., None] = compiled(each, function)
    return made


def _operations(stage: Stage) -> int:
    """For one image, roughly."""
    values = math.prod(stage.output_shape)
    compared = values * math.prod(stage.layer.size) if isinstance(stage.layer, Pooling) else 0
    return stage.flops + compared + values * VALUE_OPERATIONS


def weight_and_bias(name: str, parameters: Parameters) -> tuple[Array, Array]:
    """A layer's parameters; a layer without bias gets one of zeros, so that one kernel serves."""
    weight = parameters[f"{name}.weight"]
    bias = parameters.get(f"{name}.bias", np.zeros(len(weight), np.float32))
    return _read_only(weight), _read_only(bias)


def _read_only(values: Array) -> Array:
    """As most parameters are: to Numba, what may be written is another type, compiled again."""
    same = values.view()
    same.flags.writeable = False
    return same
