"""`onnxruntime`: the whole network in ONNX Runtime (MLAS kernels), on all cores.

The network becomes an ONNX graph, which the library optimises as it likes (it fuses a
convolution with its activation and reorders channels into blocks), so there are no times for
single layers: they no longer exist. The pixels are normalised by NumPy before.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from tilewright.environment import cpu_cores
from tilewright.model.layers import Pixels
from tilewright.model.layers.onnx_node import BEFORE, INPUT, INPUTS
from tilewright.model.network import Parameters, Stage, Stages
from tilewright.model.pixels import normalise
from tilewright.precision import FLOAT32, Precision
from tilewright.rungs.rung import Launch, Options, Rung, input_then_network, launch_of
from tilewright.runtime import Buffer, FunctionRuntime
from tilewright.runtime.cpu import open_runtime
from tilewright.runtime.device import Device

# ONNX's own versions, old enough for every ONNX Runtime of the last years.
OPSET, IR_VERSION = 17, 9
# MLAS promises no accuracy for its tanh: over every third float32 up to 10, release 1.31.1 was off
# by up to 5.46 ulp (at 8.4755, 2026-11-15), where 5 are allowed to everyone else.
# Its logistic function is off by up to 1.6e-7 for values of any size (a million from -120 to 120).
PRECISION = replace(FLOAT32, tanh_ulp=6, sigmoid_error=2.0**-22)


def missing(device: Device) -> str | None:
    lacking = [name for name in ("onnxruntime", "onnx") if find_spec(name) is None]
    if not lacking:
        return None
    return f"{' and '.join(lacking)} not installed: pip install 'tilewright[onnxruntime]'"


def prepare(
    runtime: FunctionRuntime,
    stages: Stages,
    parameters: Parameters,
    options: Options,
    precision: Precision,
) -> Launch:
    if isinstance(stages[0].layer, Pixels):
        return launch_of(runtime, "normalise", stages, normalise(stages[0].layer))

    layers = tuple(stage.name for stage in stages)
    session = _session(onnx_model(stages, parameters))
    kernel = runtime.build("onnxruntime_network", session.run)

    def launch(x: Buffer, out: Buffer, *others: Buffer) -> None:
        (result,) = runtime.launch(kernel, None, {"x": x}, layers=layers)
        assert isinstance(out, np.ndarray)
        np.copyto(out, result)

    return launch


def _session(model: bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cpu_cores()
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def onnx_model(stages: Stages, parameters: Parameters) -> bytes:
    """These layers as an ONNX graph from `x` to `y`, for any number of images."""
    from onnx import TensorProto, helper, numpy_helper

    nodes: list[Any] = []
    names = [name for stage in stages for name in stage.parameter_shapes]
    constants = [numpy_helper.from_array(np.array(parameters[name]), name) for name in names]
    values = {stages[0].sources[0]: "x"}
    for stage in stages:
        values[stage.index] = result = "y" if stage is stages[-1] else stage.name
        made, own = _nodes(stage, [values[source] for source in stage.sources], result)
        nodes += made
        constants += own
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["images", *shape])
        for name, shape in (("x", stages[0].input_shape), ("y", stages[-1].output_shape))
    ]
    graph = helper.make_graph(nodes, "network", ends[:1], ends[1:], constants)
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)
    return bytes(model.SerializeToString())


def _nodes(stage: Stage, x: list[str], y: str) -> tuple[list[Any], list[Any]]:
    """A layer's nodes from values `x` to value `y`, and the constants that they read."""
    from onnx import numpy_helper
    from onnx.helper import make_node

    described = stage.layer.onnx()
    nodes, constants, before = [], [], x[0]
    for number, node in enumerate(described):
        result = y if node is described[-1] else f"{stage.name}_{number}"
        known = {INPUT: x[:1], INPUTS: x, BEFORE: [before]}
        read = [value for name in node.inputs for value in known[name]]
        if node.takes_parameters:
            read += stage.parameter_shapes
        for index, value in enumerate(node.constants):
            name = f"{stage.name}_{number}_constant{index}"
            constants.append(numpy_helper.from_array(np.array(value, np.float32), name))
            read.append(name)
        attributes: dict[str, Any] = dict(node.attributes)
        nodes.append(make_node(node.operator, read, [result], **attributes))
        before = result
    return nodes, constants


RUNG = Rung(
    name="onnxruntime",
    idea="ONNX Runtime's own kernels (MLAS), the whole network at once",
    devices=("cpu",),
    prepare=prepare,
    open_runtime=open_runtime,
    form="onnx",
    cut=input_then_network,
    missing=missing,
    vendor=True,
    precision=PRECISION,
)
