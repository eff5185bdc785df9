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
    AveragePool,
    Convolution,
    Elementwise,
    FullyConnected,
    MaxPool,
    Pixels,
    Pooling,
    Softmax,
    Table,
)
from tilewright.model.network import Parameters, Stage, Stages
from tilewright.rungs.cpu.kept import Kept
from tilewright.threads import share

Array = NDArray[np.float32]
# Operations of one call at most, about a nanosecond each: a tenth of a second.
LONGEST_CALL = 100_000_000
# What a value takes beside its sum, at most: tanh and exp are the dearest.
VALUE_OPERATIONS = 32


def compiled(function: Callable[..., None], *inside: Callable[..., Any]) -> Any:
    """Machine code on first use, kept on disk for the next start where there is a place for it.

    `inside` are other functions that become a part of it.
    """
    made: Any = numba.njit(nogil=True, fastmath={"contract"})(function)
    made._cache = Kept(function, *inside)
    return made


@compiled
def pixels(x: Any, out: Array, first: int, last: int, scale: float, shift: float) -> None:
    """A job is one image."""
    images, values = x.reshape(x.shape[0], -1), out.reshape(out.shape[0], -1)
    for image in range(first, last):
        for i in range(images.shape[1]):
            values[image, i] = np.float32(images[image, i] * scale + shift)


@compiled
def convolution(
    x: Array, out: Array, first: int, last: int,
    weight: Array, bias: Array, stride: tuple[int, int], padding: tuple[int, int],
) -> None:  # fmt: skip
    """A job is one output plane: one filter over one image."""
    _, filters, height, width = out.shape
    _, channels, input_height, input_width = x.shape
    _, _, kernel_height, kernel_width = weight.shape
    for job in range(first, last):
        n, f = job // filters, job % filters
        for y in range(height):
            for column in range(width):
                total = bias[f]
                for c in range(channels):
                    for ky in range(kernel_height):
                        iy = y * stride[0] + ky - padding[0]
                        if iy < 0 or iy >= input_height:
                            continue
                        for kx in range(kernel_width):
                            ix = column * stride[1] + kx - padding[1]
                            if ix < 0 or ix >= input_width:
                                continue
                            total += x[n, c, iy, ix] * weight[f, c, ky, kx]
                out[n, f, y, column] = total


@compiled
def max_pool(
    x: Array, out: Array, first: int, last: int, size: tuple[int, int], stride: tuple[int, int]
) -> None:
    """A job is one plane: one channel of one image."""
    _, channels, height, width = out.shape
    for job in range(first, last):
        n, c = job // channels, job % channels
        for y in range(height):
            for column in range(width):
                top, left = y * stride[0], column * stride[1]
                best = x[n, c, top, left]
                for ky in range(size[0]):
                    for kx in range(size[1]):
                        value = x[n, c, top + ky, left + kx]
                        if value > best or value != value:  # sooner than `np.maximum`
                            best = value
                out[n, c, y, column] = best


@compiled
def average_pool(
    x: Array, out: Array, first: int, last: int, size: tuple[int, int], stride: tuple[int, int]
) -> None:
    """A job is one plane: one channel of one image."""
    _, channels, height, width = out.shape
    for job in range(first, last):
        n, c = job // channels, job % channels
        for y in range(height):
            for column in range(width):
                top, left = y * stride[0], column * stride[1]
                total = np.float32(0)
                for ky in range(size[0]):
                    for kx in range(size[1]):
                        total += x[n, c, top + ky, left + kx]
                out[n, c, y, column] = total / np.float32(size[0] * size[1])


@compiled
def fully_connected(
    x: Array, out: Array, first: int, last: int, weight: Array, bias: Array
) -> None:
    """A job is one output of one image."""
    _, outputs = out.shape
    rows = x.reshape(x.shape[0], -1)
    for job in range(first, last):
        n, o = job // outputs, job % outputs
        total = bias[o]
        for i in range(weight.shape[1]):
            total += rows[n, i] * weight[o, i]
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
    """A layer's kernel with its settings, how many jobs one image makes, and how many a call."""

    kernel: Callable[..., None]
    settings: tuple[Any, ...]
    jobs: int
    piece: int

    def on(self, cores: int) -> Callable[[Any, Array], None]:
        """All jobs of a batch, divided among so many cores."""

        def run(x: Any, out: Array) -> None:
            def work(first: int, last: int) -> None:
                self.kernel(x, out, first, last, *self.settings)

            if cores > 1:
                work(0, 0)  # compiled on this thread, if need be, where Ctrl-C is seen meanwhile
            share(work, len(x) * self.jobs, cores, self.piece)

        return run


def loops_for(stages: Stages, parameters: Parameters) -> Loops:
    """The loops of a single stage."""
    (stage,) = stages
    kernel, settings, jobs = LOOPS.find(stage)(stage, stage.layer, parameters)
    return Loops(kernel, settings, jobs, max(1, LONGEST_CALL * jobs // _operations(stage)))


# A kernel, its settings, and how many jobs one image makes.
Chosen = tuple[Callable[..., None], tuple[Any, ...], int]
LOOPS: Table[Callable[[Stage, Any, Parameters], Chosen]] = Table("loops")


@LOOPS.of(Pixels)
def _pixels(stage: Stage, layer: Pixels, parameters: Parameters) -> Chosen:
    return pixels, (layer.scale, layer.shift), 1


@LOOPS.of(Convolution)
def _convolution(stage: Stage, layer: Convolution, parameters: Parameters) -> Chosen:
    weight, bias = weight_and_bias(stage.name, parameters)
    return convolution, (weight, bias, layer.stride, layer.padding), layer.filters


@LOOPS.of(MaxPool, AveragePool)
def _pooling(stage: Stage, layer: Pooling, parameters: Parameters) -> Chosen:
    pool = average_pool if isinstance(layer, AveragePool) else max_pool
    return pool, (layer.size, layer.stride), stage.output_shape[0]


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
    scalar = numba.njit(nogil=True, fastmath={"contract"})(function)

    def each(x: Array, out: Array, first: int, last: int, *settings: Any) -> None:
        before, after = x.reshape(x.shape[0], -1), out.reshape(out.shape[0], -1)
        for image in range(first, last):
            for i in range(before.shape[1]):
                after[image, i] = scalar(before[image, i], *settings)

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
    bias = parameters.get(f"{name}.bias")
    return weight, np.zeros(len(weight), np.float32) if bias is None else bias
