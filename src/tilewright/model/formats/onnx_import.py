"""`--net model.onnx`: a network out of an ONNX graph, in the file's order of execution.

What a graph that takes bytes does to them first (a mean subtracted, a Rescaling) becomes the scale
and shift of the network's input. A file written by Tilewright gives the very network that it was
written from.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.model.formats import onnx_file
from tilewright.model.formats.draft import Draft, name_of
from tilewright.model.formats.entering import begin
from tilewright.model.formats.folding import finish
from tilewright.model.formats.onnx_constants import FUNCTIONS, evaluate
from tilewright.model.formats.onnx_export import exported
from tilewright.model.formats.onnx_file import Node, OnnxFile
from tilewright.model.formats.onnx_inputs import Building, Inputs, Known
from tilewright.model.formats.onnx_nodes import MAKERS
from tilewright.model.formats.onnx_tensors import short
from tilewright.model.formats.parts import FREE, Value
from tilewright.model.formats.problems import NotUnderstood
from tilewright.model.network import Network

# What may come before pictures with channels last are turned round.
PASSED = {"Add", "Cast", "Div", "Gather", "Identity", "Mul", "Pad", "Resize", "Slice", "Sub",
          "Upsample"}  # fmt: skip
COLOURS = (1, 3)  # how many channels pictures have that a file takes as they come


@np.errstate(all="ignore")  # what a damaged file's numbers come to is refused, not warned of
def read(path: Path) -> Network:
    """The network of a file, with its weights."""
    model = onnx_file.parse(path)
    if (network := exported(model, path)) is not None:
        return network
    file = onnx_file.read(path, model)
    try:
        draft, output = _drafted(file)
        draft.notes["from"] = f"{name_of(path)}{path.suffix}"
        return finish(draft, output, name_of(path))
    except NotUnderstood:
        raise  # names the file itself
    except TilewrightError as error:
        raise TilewrightError(f"{path}: {error}") from error


# What a node gives: one value or constant, several values, or None where it was not understood.
Made = Known | tuple[Value, ...] | None


def _drafted(file: OnnxFile) -> tuple[Draft, Value]:
    """All nodes, or everything that is not understood of them."""
    draft, given = begin(file.shape, file.pixels, _channels_last(file))
    building = Building(draft, file.opset, file.batch or FREE, file.output)
    # None: what a node that was not understood gave.
    known: dict[str, Known | None] = {**file.constants, file.input: given}
    problems: list[tuple[str, str]] = []
    for node in file.nodes:
        try:
            made = _made(building, node, known)
        except TilewrightError as error:
            problems.append((node.label, str(error)))
            made = None
        _keep(node, made, known, problems)
    if file.output not in known:
        problems.append((f"output {short(file.output)}", "no node makes it"))
    if problems:
        raise NotUnderstood(str(file.path), problems)
    output = known[file.output]
    if not isinstance(output, Value):
        raise TilewrightError("its output does not depend on its input")
    if given.last and output.last:
        draft.notes["output"] = "pictures of channel, y, x, where the file has channels last"
        output = replace(output, last=False)
    return draft, output


def _keep(
    node: Node, made: Made, known: dict[str, Known | None], problems: list[tuple[str, str]]
) -> None:
    values = made if isinstance(made, tuple) else (made,)
    for index, name in enumerate(node.outputs):
        if name and name in known:
            problems.append((node.label, f"makes {short(name)} a second time"))
        elif name:
            known[name] = values[index] if index < len(values) else None


def _made(building: Building, node: Node, known: dict[str, Known | None]) -> Made:
    """What a node gives: a constant, a value, or None where its inputs are not known."""
    if node.operator not in MAKERS and node.operator not in FUNCTIONS:
        raise TilewrightError("not an operator that is understood")
    if not node.outputs:
        raise TilewrightError("makes nothing")
    for name in node.inputs:
        if name and name not in known:
            raise TilewrightError(f"takes {short(name)}, which no node before it makes")
    inputs: Inputs = [known[name] if name else None for name in node.inputs]
    if any(name and known[name] is None for name in node.inputs):
        return None
    if not any(isinstance(each, Value) for each in inputs):
        if node.operator not in FUNCTIONS:
            raise TilewrightError("is computed of constants alone")
        return building.draft.computed(evaluate(node, _arrays(inputs)))
    if node.operator not in MAKERS:
        raise TilewrightError("is understood of constants alone")
    try:
        return MAKERS[node.operator](building, node, inputs)
    except (ValueError, TypeError, IndexError, KeyError, ArithmeticError) as error:
        # Settings of another type than the operator's: a damaged file.
        raise TilewrightError(f"has settings that do not belong to it: {error}") from error


def _arrays(inputs: Inputs) -> list[NDArray[Any] | None]:
    return [each if isinstance(each, np.ndarray) else None for each in inputs]


def _channels_last(file: OnnxFile) -> bool:
    """Whether pictures come with their channels last: what they go through first says so.

    Exporters reshape grey pictures where they would turn others around.
    """
    if len(file.shape) != 3:
        return False
    reached = {file.input}
    for node in file.nodes:
        if not node.inputs or node.inputs[0] not in reached:
            continue
        if node.operator == "Transpose":
            return node.attributes.get("perm") == (0, 3, 1, 2)
        if node.operator in ("Reshape", "Flatten", "Squeeze"):
            return file.shape[2] in COLOURS and file.shape[0] not in COLOURS
        if node.operator in PASSED:
            reached.update(node.outputs)
    return False
