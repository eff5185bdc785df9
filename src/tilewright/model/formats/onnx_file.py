"""An ONNX file, read with care: what it claims is checked before any memory is taken for it.

Weights may be inside or beside the file, as its external data: then in its own folder, and nowhere
else. `onnx` is needed to read the format, and imported when a file is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.files import check_file, reason
from tilewright.model.formats.onnx_tensors import FLOATS, array, check_beside, short
from tilewright.model.formats.problems import several
from tilewright.model.layers import Shape
from tilewright.model.layers.sizes import LARGEST
from tilewright.model.network import MOST_LAYERS

LARGEST_BYTES = 2 << 30  # more than which the format has no room for
MOST_NODES = 2 * MOST_LAYERS
OLDEST = 7


@dataclass(frozen=True)
class Node:
    """An operator, what it takes and makes (empty: left out), and its settings."""

    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]

    @property
    def label(self) -> str:
        return f"{self.name} ({self.operator})"


@dataclass(frozen=True)
class OnnxFile:
    """A model's graph. `batch` is None where it is free; `constants` are its initialisers."""

    path: Path
    opset: int
    nodes: tuple[Node, ...]
    constants: Mapping[str, NDArray[np.generic]]
    input: str
    batch: int | None
    shape: Shape
    pixels: bool
    output: str
    metadata: Mapping[str, str] = field(default_factory=dict)


def require_onnx() -> None:
    """TilewrightError with the way to get it, if it is not there."""
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise TilewrightError("onnx is not installed: pip install 'tilewright[onnx]'") from error


def parse(path: Path) -> Any:
    """The file as the library reads it, without external data."""
    require_onnx()
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    check_file(path)
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise TilewrightError(f"{path}: larger than the {LARGEST_BYTES:,} bytes that are read")
        model = ModelProto()
        model.ParseFromString(path.read_bytes())
    except OSError as error:
        raise TilewrightError(f"cannot read {path}: {reason(error)}") from error
    except (DecodeError, RecursionError) as error:
        raise TilewrightError(f"{path}: not an ONNX file, or a damaged one") from error
    return model


def read(path: Path, model: Any) -> OnnxFile:
    """What `parse` gave, checked."""
    try:
        return _read(path, model)
    except UnicodeDecodeError as error:
        raise TilewrightError(f"{path}: a damaged ONNX file: a name is not text") from error
    except TilewrightError as error:
        raise TilewrightError(f"{path}: {error}") from error


def _read(path: Path, model: Any) -> OnnxFile:
    graph = model.graph
    opset = _opset(model)
    if not graph.node:
        raise TilewrightError("has no nodes: not an ONNX model, or an empty one")
    if len(graph.node) > MOST_NODES:
        raise TilewrightError(f"{len(graph.node):,} nodes are more than the {MOST_NODES:,} taken")
    if len(model.functions):
        raise TilewrightError("has functions of its own: inline them (onnx.inliner) first")
    if len(graph.sparse_initializer):
        raise TilewrightError("has sparse initialisers, which are not understood")
    check_beside(graph, path.parent)
    constants: dict[str, NDArray[np.generic]] = {}
    for tensor in graph.initializer:
        if tensor.name in constants:
            raise TilewrightError(f"two initialisers are called {short(tensor.name)}")
        constants[tensor.name] = array(tensor, path.parent)
    inputs = [each for each in graph.input if each.name not in constants]
    for what, found in (("input", inputs), ("output", graph.output)):
        if len(found) != 1:
            names = ", ".join(short(each.name) for each in found[:8])
            raise TilewrightError(several(what, len(found), f" ({names})" if names else ""))
    batch, shape, pixels = _pictures(inputs[0])
    nodes = tuple(_node(index, node, path.parent) for index, node in enumerate(graph.node))
    metadata = {each.key: each.value for each in model.metadata_props}
    name, output = inputs[0].name, graph.output[0].name
    return OnnxFile(path, opset, nodes, constants, name, batch, shape, pixels, output, metadata)


def _opset(model: Any) -> int:
    from onnx import defs

    versions = [each.version for each in model.opset_import if each.domain in ("", "ai.onnx")]
    if not versions:
        raise TilewrightError("does not say which opset of ONNX it is in")
    newest = int(defs.onnx_opset_version())
    if not OLDEST <= versions[0] <= newest:
        raise TilewrightError(
            f"is in opset {versions[0]}; {OLDEST} to {newest} are understood by the onnx here"
        )
    return int(versions[0])


def _pictures(value: Any) -> tuple[int | None, Shape, bool]:
    """The batch, the shape of an image as the file has it, and whether pixels are whole numbers."""
    from onnx import TensorProto

    kind, name = value.type.tensor_type, short(value.name)
    if kind.elem_type not in (TensorProto.UINT8, *FLOATS):
        raise TilewrightError(f"input {name} is neither uint8 nor floating point")
    sizes = [each.dim_value if each.HasField("dim_value") else None for each in kind.shape.dim]
    if len(sizes) not in (2, 4):
        raise TilewrightError(
            f"input {name} has {len(sizes)} axes; 4 (a batch of pictures) or 2 (of rows) needed"
        )
    shape = []
    for axis, size in enumerate(sizes[1:], start=1):
        if size is None or not 0 < size <= LARGEST:
            said = "free" if size is None else size
            raise TilewrightError(f"input {name}: axis {axis} is {said}; it must be a fixed size")
        shape.append(int(size))
    if sizes[0] is not None and not 0 < sizes[0] <= LARGEST:
        raise TilewrightError(f"input {name}: a batch of {sizes[0]}")
    return sizes[0], tuple(shape), kind.elem_type == TensorProto.UINT8


def _node(index: int, node: Any, folder: Path) -> Node:
    domain = "" if node.domain in ("", "ai.onnx") else f"{node.domain}."
    operator = short(f"{domain}{node.op_type}")[1:-1]
    name = short(node.name)[1:-1] if node.name else f"node {index + 1}"
    attributes = {}
    for each in node.attribute:
        if each.name in attributes:
            raise TilewrightError(f"{name} ({operator}): attribute {short(each.name)} comes twice")
        attributes[each.name] = _attribute(each, folder)
    return Node(name, operator, tuple(node.input), tuple(node.output), attributes)


def _attribute(attribute: Any, folder: Path) -> Any:
    """A number, a text, a tuple of them, an array; None for what is not understood."""
    from onnx import AttributeProto

    match attribute.type:
        case AttributeProto.INT:
            return int(attribute.i)
        case AttributeProto.FLOAT:
            return float(attribute.f)
        case AttributeProto.STRING:
            return attribute.s.decode("utf-8", errors="replace")
        case AttributeProto.INTS:
            return tuple(attribute.ints)
        case AttributeProto.FLOATS:
            return tuple(attribute.floats)
        case AttributeProto.TENSOR:
            return array(attribute.t, folder)
    return None
