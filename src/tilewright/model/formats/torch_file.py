"""A `.pt2` file, as `torch.export.save` writes it, read without PyTorch and without unpickling.

The file is a ZIP archive: the graph and the shapes of all tensors as JSON, each tensor's bytes as a
member of its own. PyTorch's own `torch.export.load` unpickles what a file asks it to, and loads
compiled libraries that it finds inside; of a stranger's file that would run the stranger's code.
Here such members are never opened, and a tensor that is stored as a pickle is refused.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.files import check_file, reason
from tilewright.model.formats.numbers import bfloat16
from tilewright.model.formats.problems import several
from tilewright.model.layers import Shape
from tilewright.model.layers.sizes import LARGEST
from tilewright.model.network import LARGEST_TENSOR, MOST_LAYERS

LARGEST_BYTES = 4 << 30
LARGEST_JSON = 200_000_000
# Bytes of tensors, for each of the file's and beyond these.
MOST_SHARED, GROWN = 4, 1 << 24
MOST_CALLS = 2 * MOST_LAYERS
# PyTorch's numbers of types of tensors.
TYPES: Mapping[int, Any] = {
    1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 6: np.float16, 7: np.float32,
    8: np.float64, 12: np.bool_,
}  # fmt: skip
BFLOAT16 = 13
FLOATING = (6, 7, 8, BFLOAT16)
PIXELS = 1
# Where in the archive, and below which key of the graph's signature, tensors are.
PLACES = {"parameter": "weights", "buffer": "weights", "tensor_constant": "constants"}


@dataclass(frozen=True)
class Ref:
    """A value by its name."""

    name: str


@dataclass(frozen=True)
class Call:
    """An operator of PyTorch's with its arguments by name, some of them `Ref`s or lists of them."""

    name: str
    operator: str
    arguments: Mapping[str, Any]
    outputs: tuple[str, ...]

    @property
    def label(self) -> str:
        return f"{self.name} ({self.operator})"

    @property
    def in_place(self) -> bool:
        return self.operator.endswith("_")

    @property
    def plain(self) -> str:
        """The operator without saying that it works in place."""
        return self.operator.removesuffix("_")


@dataclass(frozen=True)
class Program:
    """`batch` is None where it is free; `tensors` have the names that calls use, `modules` those of
    the module they were part of."""

    calls: tuple[Call, ...]
    tensors: Mapping[str, NDArray[np.generic]]
    modules: Mapping[str, str]
    input: str
    batch: int | None
    shape: Shape
    pixels: bool
    output: str


def read(path: Path) -> Program:
    check_file(path)
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise TilewrightError(f"{path}: larger than the {LARGEST_BYTES:,} bytes that are read")
        with path.open("rb") as file:
            return read_archive(file, str(path))
    except OSError as error:
        raise TilewrightError(f"cannot read {path}: {reason(error)}") from error


def read_archive(file: IO[bytes], source: str) -> Program:
    """`source` is what an error names."""
    try:
        with zipfile.ZipFile(file) as archive:
            return _program(_Archive(archive))
    except TilewrightError as error:
        raise TilewrightError(f"{source}: {error}") from error
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise TilewrightError(f"{source}: not a .pt2 archive, or a damaged one: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        kind = type(error).__name__
        raise TilewrightError(f"{source}: not a program that is understood ({kind})") from error


class _Archive:
    """Members by their paths below the archive's own folder. PyTorch compresses none of them: one
    that is may be a thousand times as large in memory as in the file."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive
        self.left = GROWN + MOST_SHARED * sum(each.compress_size for each in archive.infolist())
        self.members = {each.filename.partition("/")[2]: each for each in archive.infolist()}

    def bytes(self, path: str, most: int) -> bytes:
        member = self.members.get(path)
        if member is None:
            raise TilewrightError(f"has no {path}")
        if member.compress_type != zipfile.ZIP_STORED:
            raise TilewrightError(f"{path} is compressed, as torch.export.save does not do it")
        if member.file_size > most:
            raise TilewrightError(f"{path} is larger than it may be")
        with self.archive.open(member) as file:
            return file.read(most)

    def take(self, name: str, size: int) -> None:
        """Tensors may share bytes of the archive, or repeat some, but not without end."""
        self.left -= size
        if self.left < 0:
            raise TilewrightError(f"{name} and the tensors before it are larger than the file")

    def json(self, path: str) -> Any:
        return json.loads(self.bytes(path, LARGEST_JSON))


def _program(archive: _Archive) -> Program:
    models = [path for path in archive.members if path.startswith("models/")]
    if len(models) != 1 or not models[0].endswith(".json"):
        raise TilewrightError(
            "one program as torch.export.save of PyTorch 2.8 or later writes it is needed"
        )
    name = models[0].removeprefix("models/").removesuffix(".json")
    module = archive.json(models[0])["graph_module"]
    graph, signature = module["graph"], module["signature"]
    stored = {
        folder: archive.json(f"data/{folder}/{name}_{folder}_config.json")["config"]
        for folder in ("weights", "constants")
    }
    if len(graph["nodes"]) > MOST_CALLS:
        raise TilewrightError(
            f"{len(graph['nodes']):,} calls are more than the {MOST_CALLS:,} taken"
        )
    tensors, modules, inputs = {}, {}, []
    for spec in signature["input_specs"]:
        ((kind, content),) = spec.items()
        if kind == "user_input":
            inputs.append(content["arg"]["as_tensor"]["name"])
        elif kind in PLACES:
            called, full = content["arg"]["name"], content[f"{kind}_name"]
            where = stored["weights"] if full in stored["weights"] else stored["constants"]
            folder = "weights" if where is stored["weights"] else "constants"
            tensors[called] = _tensor(archive, folder, full, where[full])
            modules[called] = full.rpartition(".")[0]
        else:
            raise TilewrightError(f"takes a {kind}, which is not understood")
    outputs = [each["as_tensor"]["name"] for each in graph["outputs"]]
    for what, found in (("input", inputs), ("output", outputs)):
        if len(found) != 1:
            raise TilewrightError(several(what, len(found)))
    batch, shape, pixels = _pictures(graph["tensor_values"][inputs[0]])
    calls = tuple(map(_call, graph["nodes"]))
    return Program(calls, tensors, modules, inputs[0], batch, shape, pixels, outputs[0])


def _tensor(archive: _Archive, folder: str, name: str, entry: Any) -> NDArray[np.generic]:
    if entry["use_pickle"]:
        raise TilewrightError(
            f"{name} is stored as a pickle, which may run any code when it is read"
        )
    meta = entry["tensor_meta"]
    brief = meta["dtype"] == BFLOAT16
    if meta["dtype"] not in TYPES and not brief:
        raise TilewrightError(f"{name} holds numbers of a type that is not understood")
    sizes, steps = (tuple(each["as_int"] for each in meta[key]) for key in ("sizes", "strides"))
    first, dtype = (
        meta["storage_offset"]["as_int"],
        np.dtype(np.float32 if brief else TYPES[meta["dtype"]]),
    )
    if min((*sizes, *steps, first), default=0) < 0 or math.prod(sizes) > LARGEST_TENSOR:
        raise TilewrightError(f"{name} has a size that is not understood")
    archive.take(name, math.prod(sizes) * dtype.itemsize)
    data = archive.bytes(f"data/{folder}/{entry['path_name']}", 8 * LARGEST_TENSOR)
    values = bfloat16(data) if brief else np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype)
    reach = first + sum((size - 1) * step for size, step in zip(sizes, steps, strict=True)) + 1
    if math.prod(sizes) and reach > values.size:
        raise TilewrightError(f"{name} has {values.size:,} numbers of the {reach:,} it claims")
    if not math.prod(sizes):
        return np.zeros(sizes, dtype)
    strides = [step * dtype.itemsize for step in steps]
    return np.ascontiguousarray(np.lib.stride_tricks.as_strided(values[first:], sizes, strides))


def _pictures(meta: Any) -> tuple[int | None, Shape, bool]:
    """The batch, the shape of an image, and whether pixels are whole numbers."""
    batch, *sizes = (each.get("as_int") for each in meta["sizes"])
    if len(sizes) not in (1, 3) or not all(size and 0 < size <= LARGEST for size in sizes):
        raise TilewrightError("its input must be a batch of pictures, or of rows, of a fixed size")
    if meta["dtype"] not in (PIXELS, *FLOATING):
        raise TilewrightError("its input is neither uint8 nor floating point")
    return batch, tuple(sizes), meta["dtype"] == PIXELS


def _call(node: Any) -> Call:
    target = str(node["target"]).removeprefix("torch.ops.aten.")
    operator = target.partition(".")[0] if "torch.ops." not in target else target
    if target.startswith("_operator."):
        operator = target
    arguments = {each["name"]: _argument(each["arg"]) for each in node["inputs"]}
    outputs = [name for each in node["outputs"] for name in _names(each)]
    name = node.get("name") or (outputs[0] if outputs else operator)
    return Call(str(name)[:80], operator[:80], arguments, tuple(outputs))


def _names(output: Any) -> list[str]:
    """What a call makes."""
    ((kind, content),) = output.items()
    if kind == "as_tensors":
        return [each["name"] for each in content]
    if kind == "as_tensor":
        return [content["name"]]
    return [content["as_name"]] if kind == "as_sym_int" else []


def _argument(argument: Any) -> Any:
    ((kind, content),) = argument.items()
    match kind:
        case "as_none":
            return None
        case "as_tensor":
            return Ref(content["name"])
        case "as_tensors":
            return [Ref(each["name"]) for each in content]
        case "as_sym_int":
            return _size(content)
        case "as_sym_ints":
            return [_size(each) for each in content]
        case "as_int" | "as_ints" | "as_float" | "as_floats" | "as_bool" | "as_bools" | "as_string":
            return content
        case "as_scalar_type":
            return content
        case "as_optional_tensors":
            return [
                Ref(each["as_tensor"]["name"]) if "as_tensor" in each else None for each in content
            ]
    return NotImplemented


def _size(content: Any) -> int | Ref:
    """A whole number, or one that a call computes."""
    return Ref(content["as_name"]) if "as_name" in content else int(content["as_int"])
