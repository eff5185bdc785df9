"""Small ONNX graphs, and what ONNX Runtime makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.model.network import Network
from tilewright.truth import reference

Nodes = list[tuple[Any, ...]]


def model(
    nodes: Nodes,
    shape: tuple[int | str, ...],
    constants: dict[str, Any] | None = None,
    *,
    opset: int = 17,
    kind: int = TensorProto.FLOAT,
    output: str = "y",
) -> Any:
    """Nodes are (operator, inputs, outputs, attributes), the input is x, the output y."""
    made = [
        helper.make_node(each[0], each[1].split(","), each[2].split(","), f"n{index}_{each[0]}",
                         **(each[3] if len(each) > 3 else {}))
        for index, each in enumerate(nodes)
    ]  # fmt: skip
    tensors = [
        numpy_helper.from_array(
            np.asarray(value) if np.asarray(value).dtype.kind == "i" else np.float32(value), name
        )
        for name, value in (constants or {}).items()
    ]
    graph = helper.make_graph(
        made, "graph", [helper.make_tensor_value_info("x", kind, list(shape))],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)], tensors,
    )  # fmt: skip
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=min(10, 3 + opset // 3)
    )


def saved(made: Any, folder: Path, name: str = "model.onnx") -> Path:
    path = folder / name
    path.write_bytes(made.SerializeToString())
    return path


def outputs(network: Network, x: np.ndarray) -> np.ndarray:
    """The network's, in float64."""
    return reference.chain(network.stages, network.parameters, x)[-1].value


def runtime(path: Path, x: np.ndarray) -> np.ndarray:
    """ONNX Runtime's."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (taken,) = session.get_inputs()
    (found,) = session.run(None, {taken.name: x})
    return np.asarray(found)


def agrees(path: Path, x: np.ndarray, ours: np.ndarray | None = None) -> Network:
    """Load a file, and compare its outputs with those of ONNX Runtime."""
    network = tilewright.load(path)
    found, expected = outputs(network, x if ours is None else ours), runtime(path, x)
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=2e-4, atol=2e-5)
    return network
