"""The thesis's weights: a ConvNetJS snapshot as a folder of `layerN_conv.txt`, `layerN_fc.txt`.

N counts the network's layers, the input being 0 (a Flatten, which ConvNetJS has not, does not
count). Each file is text: the shape on the first line, then one number a line, biases last.

    conv:  "width height depth filters"; a filter's numbers run x, then y, then channel
           (channel fastest), so that they read as [filter][x][y][channel]
    fc:    "inputs outputs"; an output's numbers run y, x, channel (channel fastest),
           while activations are stored channel, y, x
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.files import atomic_write, check_file, reason
from tilewright.model.layers import Convolution, FullyConnected, Shape, dimensions
from tilewright.model.network import Network, Stage

Array = NDArray[np.float64]
LONGEST_NUMBER = 100  # characters, with what is around it


def read(folder: Path, network: Network) -> dict[str, Array]:
    """The parameters of `network` from the snapshot in `folder`."""
    wanted = _file_names(network)
    try:
        present = {path.name for path in folder.iterdir() if path.match("layer*_*.txt")}
    except OSError as error:
        raise TilewrightError(f"cannot read {folder}: {reason(error)}") from error
    if not present:
        raise TilewrightError(f"{folder}: no ConvNetJS snapshot (layerN_conv.txt, layerN_fc.txt)")
    for name, stage in wanted.items():
        if name not in present:
            raise TilewrightError(
                f"{folder}: {name} is missing (the weights of {stage.name} of {network.name!r})"
            )
    for name in sorted(present - set(wanted)):
        raise TilewrightError(f"{folder}: {name} does not belong to network {network.name!r}")
    parameters: dict[str, Array] = {}
    for name, stage in wanted.items():
        layer, path = stage.layer, folder / name
        if isinstance(layer, Convolution):
            parameters |= _convolution(path, stage, layer)
        elif isinstance(layer, FullyConnected):
            parameters |= _fully_connected(path, stage, layer, _picture(network, stage))
        else:
            raise TilewrightError(
                f"{folder}: ConvNetJS has no weights of a layer of kind {stage.kind!r}"
            )
    return parameters


def write(network: Network, folder: Path) -> None:
    """A snapshot of a network's weights, with numbers that read back as the same float32."""
    for stage in network.stages:
        layer = stage.layer
        plain = not isinstance(layer, Convolution) or layer.groups == 1
        if not plain or (stage.parameter_shapes and stage.kind not in ("conv", "fc")):
            raise TilewrightError(f"{stage.name}: ConvNetJS has no such layer ({layer.summary})")
    for name, stage in _file_names(network).items():
        own = stage.weights(network.parameters)
        weight = own["weight"]
        if isinstance(stage.layer, Convolution):
            filters, channels, down, across = weight.shape
            shape: Shape = (across, down, channels, filters)
            rows = weight.transpose(0, 3, 2, 1)
        else:
            shape, rows = weight.shape[::-1], _channels_last(weight, _picture(network, stage))
        bias = own.get("bias", np.zeros(len(weight), np.float32))
        numbers = np.concatenate([rows.reshape(-1), bias])
        lines = [" ".join(map(str, shape)), *(str(number) for number in numbers), ""]
        with atomic_write(folder / name) as file:
            file.write("\n".join(lines).encode("ascii"))


def _picture(network: Network, stage: Stage) -> Shape:
    """What a fully connected layer sees before anything is flattened."""
    before = network.stages[stage.sources[0]]
    return stage.input_shape if before.layer.computes else before.input_shape


def _channels_last(weight: NDArray[np.float32], picture: Shape) -> NDArray[np.float32]:
    if len(picture) != 3:
        return weight
    return weight.reshape(-1, *picture).transpose(0, 2, 3, 1)


def _file_names(network: Network) -> dict[str, Stage]:
    """The file each layer with weights is stored in."""
    counted = [stage for stage in network.stages if stage.layer.computes]
    return {
        f"layer{index}_{stage.kind}.txt": stage
        for index, stage in enumerate(counted)
        if stage.parameter_shapes
    }


def _convolution(path: Path, stage: Stage, layer: Convolution) -> dict[str, Array]:
    (kernel_y, kernel_x), channels = layer.kernel, stage.input_shape[0]
    shape = (kernel_x, kernel_y, channels, layer.filters)
    weight, bias = _numbers(path, stage, shape, math.prod(shape), layer.filters)
    filters = weight.reshape(layer.filters, kernel_x, kernel_y, channels)
    return _named(stage, layer.bias, filters.transpose(0, 3, 2, 1), bias, path)


def _fully_connected(
    path: Path, stage: Stage, layer: FullyConnected, picture: Shape
) -> dict[str, Array]:
    """`picture` is what the layer sees before anything is flattened."""
    inputs = math.prod(picture)
    shape = (inputs, layer.outputs)
    rows, bias = _numbers(path, stage, shape, inputs * layer.outputs, layer.outputs)
    if len(picture) == 3:
        channels, height, width = picture
        rows = rows.reshape(layer.outputs, height, width, channels).transpose(0, 3, 1, 2)
    return _named(stage, layer.bias, rows.reshape(layer.outputs, inputs), bias, path)


def _numbers(
    path: Path, stage: Stage, shape: tuple[int, ...], weights: int, biases: int
) -> tuple[Array, Array]:
    """The file's weights and biases, once its shape line and its length are as they must be."""
    check_file(path)
    most = LONGEST_NUMBER * (weights + biases + len(shape))
    if path.stat().st_size > most:
        raise TilewrightError(f"{path}: too large for the {weights + biases} numbers it must hold")
    try:
        first, _, rest = path.read_text(encoding="ascii", errors="replace").partition("\n")
    except OSError as error:
        raise TilewrightError(f"cannot read {path}: {reason(error)}") from error
    if first.split() != [str(size) for size in shape]:
        raise TilewrightError(
            f"{path}: shape line is {first.strip()[:60]!r}, "
            f"but {stage.name} needs {' '.join(map(str, shape))!r}"
        )
    words = rest.split()
    if len(words) != weights + biases:
        raise TilewrightError(
            f"{path}: {len(words)} numbers after the shape line, but {dimensions(shape)} "
            f"weights and {biases} biases make {weights + biases}"
        )
    try:
        values = np.array(words, dtype=np.float64)
    except ValueError as error:
        raise TilewrightError(f"{path}: {error}") from error
    wrong = np.flatnonzero(~np.isfinite(values))
    if wrong.size:
        raise TilewrightError(f"{path}, line {wrong[0] + 2}: {words[wrong[0]]!r} is not finite")
    return values[:weights], values[weights:]


def _named(
    stage: Stage, has_bias: bool, weight: Array, bias: Array, path: Path
) -> dict[str, Array]:
    if has_bias:
        return {f"{stage.name}.weight": weight, f"{stage.name}.bias": bias}
    if bias.any():
        raise TilewrightError(f"{path}: has biases, but {stage.name} is a layer without")
    return {f"{stage.name}.weight": weight}
