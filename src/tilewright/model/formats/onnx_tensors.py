"""Tensors of an ONNX file, inside it or beside it: what they claim is checked before any memory is
taken for it."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.files import check_file, reason
from tilewright.model.formats.numbers import bfloat16
from tilewright.model.network import LARGEST_TENSOR

# How many times all tensors may take what is beside the file: some share weights.
MOST_SHARED = 4
# ONNX's numbers of types whose tensors are read: floating point of four sorts (the last is
# bfloat16), whole numbers, truth values.
FLOATS = (1, 10, 11, 16)
TYPES = {*FLOATS, 2, 3, 6, 7, 9}
# What an error shows of a name.
LONGEST = 80


def short(name: str) -> str:
    """A name from a file for an error: in one line, and not too long."""
    text = repr(name)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}...'"


def array(tensor: Any, folder: Path) -> NDArray[np.generic]:
    """A tensor's numbers, if there are as many as its sizes say."""
    from onnx import TensorProto, helper, numpy_helper

    name, sizes = short(tensor.name), tuple(tensor.dims)
    if any(size < 0 for size in sizes):
        raise TilewrightError(f"tensor {name} has a negative size")
    count = math.prod(sizes)
    if count > LARGEST_TENSOR:
        raise TilewrightError(f"tensor {name}: more than {LARGEST_TENSOR:,} values")
    if tensor.data_type not in TYPES:
        found = TensorProto.DataType.items()
        kind = next((key for key, number in found if number == tensor.data_type), "no type")
        raise TilewrightError(f"tensor {name} holds {kind}, which is not understood")
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
    if tensor.data_location == TensorProto.EXTERNAL:
        data = _external(tensor, folder, count * dtype.itemsize)
        if dtype.name == "bfloat16":
            return bfloat16(data).reshape(sizes)
        return np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype).reshape(sizes)
    raw = tensor.HasField("raw_data")
    held = len(tensor.raw_data) if raw else _typed(tensor)
    needed = count * dtype.itemsize if raw else count
    if held != needed:
        unit = "bytes" if raw else "numbers"
        raise TilewrightError(f"tensor {name} has {held:,} {unit} of the {needed:,} it claims")
    try:
        values = np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, OverflowError) as error:
        raise TilewrightError(f"tensor {name} cannot be read: {error}") from error
    return values.astype(np.float32) if dtype.name == "bfloat16" else values


def _typed(tensor: Any) -> int:
    """How many numbers there are in the list of its type."""
    from onnx import helper

    return len(getattr(tensor, helper.tensor_dtype_to_field(tensor.data_type)))


def _external(tensor: Any, folder: Path, size: int) -> bytes:
    """Its bytes in a file beside the model's, or below its folder."""
    name = short(tensor.name)
    settings = {each.key: each.value for each in tensor.external_data}
    location = settings.get("location", "")
    inside = Path(location)
    if not location or "\0" in location or inside.is_absolute() or ".." in inside.parts:
        raise TilewrightError(
            f"tensor {name}: its data would be at {short(location)}; only files in the model's own "
            "folder are read"
        )
    place = folder / inside
    home = Path(os.path.realpath(folder))
    if not Path(os.path.realpath(place)).is_relative_to(home):
        raise TilewrightError(f"tensor {name}: a link at {place} leads out of the model's folder")
    check_file(place)
    try:
        offset, length = int(settings.get("offset", 0)), int(settings.get("length", size))
    except ValueError as error:
        raise TilewrightError(f"tensor {name}: offset and length must be numbers") from error
    try:
        present = place.stat().st_size
        if length != size or not 0 <= offset <= present - size:
            raise TilewrightError(
                f"tensor {name} claims {size:,} bytes; {place} has {present:,}, and {length:,} for "
                f"it from {offset:,} on"
            )
        with place.open("rb") as file:
            file.seek(offset)
            return file.read(size)
    except OSError as error:
        raise TilewrightError(f"cannot read {place}: {reason(error)}") from error


def check_beside(graph: Any, folder: Path) -> None:
    """Tensors may share what is beside the file, but not all of it over and over: a hundred that
    claim a gigabyte are a hundred gigabytes of memory."""
    from onnx import TensorProto, helper

    inside = [each.t for node in graph.node for each in node.attribute if each.HasField("t")]
    claimed, places = 0, set()
    for tensor in (*graph.initializer, *inside):
        if tensor.data_location == TensorProto.EXTERNAL and tensor.data_type in TYPES:
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
            claimed += math.prod(max(0, size) for size in tensor.dims) * dtype.itemsize
            places |= {Path(each.value) for each in tensor.external_data if each.key == "location"}
    present = sum(_present(folder / place) for place in places)
    if present and claimed > MOST_SHARED * present:
        raise TilewrightError(
            f"tensors claim {claimed:,} bytes of external data, of which there are {present:,}"
        )


def _present(place: Path) -> int:
    """Bytes of a file; 0 for what is none, which is said when it is read."""
    try:
        return place.stat().st_size if place.is_file() else 0
    except (OSError, ValueError):
        return 0
