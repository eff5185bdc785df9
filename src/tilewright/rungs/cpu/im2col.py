"""`im2col`: every convolution unrolled into a matrix and given to BLAS as one product.

Each image's windows are copied into a matrix of (channel x kernel y x kernel x) rows and one
column an output position; the filters are the rows of the other matrix. The copy multiplies
the input by the kernel's area, but the product then runs at the speed of a tuned library, in
vector registers and over all cores. Images go one at a time through one matrix, which so stays
in cache. It should win everywhere, least where a layer has few filters: the copy is then dear
beside the arithmetic. The other layers are NumPy's own loops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
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
from tilewright.model.layers.elementwise import quiet
from tilewright.model.network import Parameters, Stage, Stages
from tilewright.model.pixels import normalise
from tilewright.precision import Precision
from tilewright.rungs.rung import Launch, Options, Rung, launch_of
from tilewright.runtime import FunctionRuntime
from tilewright.runtime.cpu import open_runtime

Array = NDArray[np.float32]
# Reads a batch and fills another; a layer that takes several reads the others after that.
Run = Callable[..., None]
NUMPY: Table[Callable[[Stage, Any, Parameters], Run]] = Table("numpy")


def prepare(
    runtime: FunctionRuntime,
    stages: Stages,
    parameters: Parameters,
    options: Options,
    precision: Precision,
) -> Launch:
    (stage,) = stages
    return launch_of(runtime, f"im2col_{stage.kind}", stages, function(stage, parameters))


def function(stage: Stage, parameters: Parameters) -> Run:
    """A layer in NumPy."""
    return NUMPY.find(stage)(stage, stage.layer, parameters)


@NUMPY.of(Pixels)
def _pixels(stage: Stage, layer: Pixels, parameters: Parameters) -> Run:
    return normalise(layer)


@NUMPY.of(Convolution)
def _convolution(stage: Stage, layer: Convolution, parameters: Parameters) -> Run:
    """A product for each group of filters; most layers have one group."""
    channels, height, width = stage.input_shape
    (kernel_y, kernel_x), (stride_y, stride_x) = layer.kernel, layer.stride
    (above, left, below, right), (filters, out_y, out_x) = layer.padding, stage.output_shape
    groups, (apart_y, apart_x) = layer.groups, layer.dilation
    taps = channels // groups * kernel_y * kernel_x
    weight = parameters[f"{stage.name}.weight"].reshape(groups, filters // groups, taps)
    bias = parameters.get(f"{stage.name}.bias")

    # The border stays zero from image to image; only the inside is written.
    padded = np.zeros((channels, height + above + below, width + left + right), np.float32)
    inside = padded[:, above : above + height, left : left + width]
    windows = sliding_window_view(padded, layer.extent, axis=(1, 2))
    windows = windows[:, ::stride_y, ::stride_x, ::apart_y, ::apart_x].transpose(0, 3, 4, 1, 2)
    columns = np.empty((groups, taps, out_y * out_x), np.float32)
    unrolled = columns.reshape(windows.shape)

    def run(x: Array, out: Array) -> None:
        results = out.reshape(len(out), groups, filters // groups, out_y * out_x)
        for image, result in zip(x, results, strict=True):
            inside[:] = image
            unrolled[:] = windows
            np.matmul(weight, columns, out=result)
        if bias is not None:
            out += bias[:, None, None]

    return run


@NUMPY.of(MaxPool, AveragePool)
def _pooling(stage: Stage, layer: Pooling, parameters: Parameters) -> Run:
    """Each tap of the window is a strided picture; combine them one after the other."""
    (size_y, size_x), (stride_y, stride_x) = layer.size, layer.stride
    counts = None
    combine: np.ufunc = np.maximum
    outside = -np.inf
    if isinstance(layer, AveragePool):
        counts = layer.counts(stage.input_shape).astype(np.float32)
        combine, outside = np.add, 0.0
    above, left, below, right = (max(0, side) for side in layer.beyond(stage.input_shape))
    around = ((0, 0), (0, 0), (above, below), (left, right))

    def run(x: Array, out: Array) -> None:
        if layer.specials:
            x = np.pad(x, around, constant_values=outside)
        _, _, height, width = out.shape
        for ky in range(size_y):
            for kx in range(size_x):
                bottom, right = ky + height * stride_y, kx + width * stride_x
                tap = x[:, :, ky:bottom:stride_y, kx:right:stride_x]
                if ky == kx == 0:
                    out[:] = tap
                else:
                    combine(out, tap, out=out)
        if counts is not None:
            out /= counts

    return run


@NUMPY.of(Take)
def _take(stage: Stage, layer: Take, parameters: Parameters) -> Run:
    rows, columns = np.array(layer.rows), np.array(layer.columns)

    def run(x: Array, out: Array) -> None:
        out[:] = x[:, :, rows[:, None], columns]

    return run


@NUMPY.of(Add)
def _add(stage: Stage, layer: Add, parameters: Parameters) -> Run:
    def run(x: Array, out: Array, *others: Array) -> None:
        out[:] = x
        for other in others:
            out += other

    return run


@NUMPY.of(Multiply)
def _multiply(stage: Stage, layer: Multiply, parameters: Parameters) -> Run:
    more = len(stage.input_shapes[0]) - len(stage.input_shapes[1])

    def run(x: Array, out: Array, other: Array) -> None:
        np.multiply(x, other.reshape(*other.shape, *[1] * more), out=out)

    return run


@NUMPY.of(Concat)
def _concat(stage: Stage, layer: Concat, parameters: Parameters) -> Run:
    def run(x: Array, out: Array, *others: Array) -> None:
        np.concatenate((x, *others), axis=1, out=out)

    return run


@NUMPY.of(FullyConnected)
def _fully_connected(stage: Stage, layer: FullyConnected, parameters: Parameters) -> Run:
    weight = parameters[f"{stage.name}.weight"]
    bias = parameters.get(f"{stage.name}.bias")

    def run(x: Array, out: Array) -> None:
        np.matmul(x.reshape(len(x), -1), weight.T, out=out)
        if bias is not None:
            out += bias

    return run


@NUMPY.family(Elementwise)
def _elementwise(stage: Stage, layer: Elementwise, parameters: Parameters) -> Run:
    """Image by image, so that what is made on the way stays in cache."""
    function, settings = layer.function, layer.settings
    assert function is not None  # it has the form

    def run(x: Array, out: Array) -> None:
        with quiet():
            for image, result in zip(x, out, strict=True):
                result[...] = function(image, *settings)

    return run


@NUMPY.of(Softmax)
def _softmax(stage: Stage, layer: Softmax, parameters: Parameters) -> Run:
    def run(x: Array, out: Array) -> None:
        np.subtract(x, x.max(axis=1, keepdims=True), out=out)
        np.exp(out, out=out)
        out /= out.sum(axis=1, keepdims=True)

    return run


RUNG = Rung(
    name="im2col",
    idea="unroll each image into a matrix: the convolution is one BLAS product at library speed",
    against="threads",
    devices=("cpu",),
    prepare=prepare,
    open_runtime=open_runtime,
    form="numpy",
)
