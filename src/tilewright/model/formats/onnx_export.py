"""A network as an ONNX file, its normalisation included: from uint8 pixels to the last layer.

The file carries the network's description, so that reading it gives the same network again, bit for
bit: a scale of 1/255 has more digits than the float32 of a node. What others changed in the file
counts, though: the description is believed only if it gives this very graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.files import atomic_write
from tilewright.model.formats.description import from_json, to_json
from tilewright.model.formats.onnx_file import require_onnx
from tilewright.model.formats.onnx_tensors import array
from tilewright.model.layers import AveragePool, Join, Layer, Shape
from tilewright.model.layers.onnx_node import BEFORE, INPUT, INPUTS, SECOND
from tilewright.model.layers.pooling import Pooling
from tilewright.model.network import Network, Parameters, Stage, Stages

# ONNX's own versions, old enough for every ONNX Runtime of the last years.
OPSET, IR_VERSION = 17, 9
DESCRIPTION, NOTE = "tilewright.network", "tilewright.note."
LARGEST_BYTES = (2 << 30) - (1 << 20)  # the format has no room for more


def save(network: Network, path: Path) -> None:
    """Store a network and its weights."""
    require_onnx()
    if network.parameter_shapes and not network.parameters:
        raise TilewrightError(f"network {network.name!r} has no weights to save")
    if 4 * network.parameter_count > LARGEST_BYTES:
        raise TilewrightError(f"network {network.name!r} is too large for an ONNX file")
    for stage in filter(_counts_less, network.stages):
        raise TilewrightError(
            f"{stage.name} counts its padding and, by ceil, has windows that reach beyond it: "
            "versions of ONNX Runtime differ in what they divide by, so it is not written"
        )
    with atomic_write(path) as file:
        file.write(_model(network).SerializeToString())


def exported(model: Any, path: Path) -> Network | None:
    """The network that `save` wrote into a file, if it is as it was written."""
    from onnx import TensorProto

    metadata = {each.key: each.value for each in model.metadata_props}
    tensors = {each.name: each for each in model.graph.initializer}
    if DESCRIPTION not in metadata:
        return None
    try:
        bare = from_json(metadata[DESCRIPTION], str(path))
        if any(
            name not in tensors or tensors[name].data_location == TensorProto.EXTERNAL
            for name in bare.parameter_shapes
        ):
            return None
        weights = {name: array(tensors[name], path.parent) for name in bare.parameter_shapes}
        network = bare.with_parameters(weights, _notes(metadata))
    except TilewrightError:
        return None  # it does not describe this graph, which is read as any other
    again = _model(network)
    same = again.graph == model.graph and list(again.opset_import) == list(model.opset_import)
    return network if same else None


def onnx_model(stages: Stages, parameters: Parameters) -> bytes:
    """These layers as an ONNX graph from `x` to `y`, for any number of images."""
    from onnx import TensorProto

    nodes, constants = _body(stages, parameters, {stages[0].sources[0]: "x"}, "y")
    ends = (
        _end("x", TensorProto.FLOAT, stages[0].input_shape),
        _end("y", TensorProto.FLOAT, stages[-1].output_shape),
    )
    return bytes(_packed("network", nodes, constants, *ends).SerializeToString())


def _model(network: Network) -> Any:
    """From pixels to the last layer, with its description."""
    from onnx import TensorProto, helper, numpy_helper

    pixels = network.input
    scale, shift = (
        np.array(each, np.float32).reshape(-1, 1, 1) for each in (pixels.scales, pixels.shifts)
    )
    enter = [
        helper.make_node("Cast", ["pixels"], ["pixels_float"], "cast", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["pixels_float", "scale"], ["pixels_scaled"], "scale"),
        helper.make_node("Add", ["pixels_scaled", "shift"], ["input"], "shift"),
    ]
    nodes, constants = _body(network.stages[1:], network.parameters, {0: "input"}, "output")
    normalisation = [
        numpy_helper.from_array(value, name) for name, value in (("scale", scale), ("shift", shift))
    ]
    model = _packed(
        network.name, enter + nodes, normalisation + constants,
        _end("pixels", TensorProto.UINT8, pixels.shape),
        _end("output", TensorProto.FLOAT, network.output_shape),
    )  # fmt: skip
    notes = {f"{NOTE}{key}": value for key, value in sorted(network.notes.items())}
    helper.set_model_props(model, {DESCRIPTION: to_json(network), **notes})
    return model


def _notes(metadata: Mapping[str, str]) -> dict[str, str]:
    return {key.removeprefix(NOTE): text for key, text in metadata.items() if key.startswith(NOTE)}


def _end(name: str, kind: int, shape: Shape) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(name, kind, ["images", *shape])


def _packed(name: str, nodes: list[Any], constants: list[Any], taken: Any, given: Any) -> Any:
    from onnx import helper

    graph = helper.make_graph(nodes, name, [taken], [given], constants)
    opset = helper.make_opsetid("", OPSET)
    return helper.make_model(
        graph, opset_imports=[opset], ir_version=IR_VERSION, producer_name="tilewright"
    )


def _body(
    stages: Stages, parameters: Parameters, values: dict[int, str], output: str
) -> tuple[list[Any], list[Any]]:
    """Layers' nodes and constants; `values` are the names of what is made outside of them."""
    from onnx import numpy_helper

    nodes: list[Any] = []
    names = [name for stage in stages for name in stage.parameter_shapes]
    constants = [numpy_helper.from_array(np.array(parameters[name]), name) for name in names]
    for stage in stages:
        values[stage.index] = result = output if stage is stages[-1] else stage.name
        made, own = _nodes(stage, [values[source] for source in stage.sources], result)
        nodes += made
        constants += own
    return nodes, constants


def _nodes(stage: Stage, x: list[str], y: str) -> tuple[list[Any], list[Any]]:
    """A layer's nodes from values `x` to value `y`, and the constants that they read."""
    from onnx import numpy_helper
    from onnx.helper import make_node

    layer = _layer(stage)
    described = layer.onnx_of(stage.input_shapes) if isinstance(layer, Join) else layer.onnx()
    nodes, constants, before = [], [], x[0]
    for number, node in enumerate(described):
        last = number == len(described) - 1
        result = y if last else f"{stage.name}_{number}"
        known = {INPUT: x[:1], SECOND: x[1:2], INPUTS: x, BEFORE: [before]}
        read = [value for name in node.inputs for value in known[name]]
        if node.takes_parameters:
            read += stage.parameter_shapes
        for index, value in enumerate(node.constants):
            name = f"{stage.name}_{number}_constant{index}"
            constants.append(numpy_helper.from_array(_number(value), name))
            read.append(name)
        if node.whole:
            name = f"{stage.name}_{number}_whole"
            constants.append(numpy_helper.from_array(np.array(node.whole, np.int64), name))
            read.append(name)
        attributes: dict[str, Any] = dict(node.attributes)
        called = stage.name if last else f"{stage.name}_{number}"
        nodes.append(make_node(node.operator, read, [result], called, **attributes))
        before = result
    return nodes, constants


def _layer(stage: Stage) -> Layer:
    """Readers differ in what `ceil_mode` means to them: padding says the same to all."""
    layer = stage.layer
    if not isinstance(layer, Pooling) or not layer.ceil or _counts_less(stage):
        return layer
    return layer.without_ceil(stage.input_shape)


def _counts_less(stage: Stage) -> bool:
    """Whether windows reach beyond a padding that counts: what they reach there does not."""
    layer = stage.layer
    if not isinstance(layer, AveragePool) or not (layer.ceil and layer.count_padding):
        return False
    reached = layer.without_ceil(stage.input_shape).padding
    return any(far > near for far, near in zip(reached, layer.padding, strict=True))


def _number(value: float) -> NDArray[np.float32]:
    return np.array(value, np.float32)
