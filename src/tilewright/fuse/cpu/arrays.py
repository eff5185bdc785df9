"""Arrays as machine code wants them: aligned, and known by their address."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tilewright.errors import TilewrightError
from tilewright.model.batches import wrong_shape, wrong_type
from tilewright.model.layers import Shape

ALIGNMENT = 64
PIXELS = (np.dtype(np.uint8), np.dtype(np.float32))


def aligned(size: int, dtype: DTypeLike) -> NDArray[Any]:
    """Zeros that start at a multiple of 64 bytes, as the widest vectors want it."""
    item = np.dtype(dtype).itemsize
    room = np.zeros(size + ALIGNMENT // item, dtype)
    start = -room.ctypes.data % ALIGNMENT // item
    return room[start : start + size]


def address(array: NDArray[Any]) -> int:
    """Where an array's values lie. `ctypes.data` takes three times as long, but never fails."""
    if array.size and array.flags.writeable:
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
    return array.ctypes.data


def batch_of(images: Any, shape: Shape, name: str) -> NDArray[Any]:
    """Images for a network that takes `shape`, as machine code wants them, or a word why not.

    A type is never guessed: 0..255 as int64 could be pixels or values.
    """
    array = images if isinstance(images, np.ndarray) else _array(images)
    if isinstance(array, np.ma.MaskedArray):
        raise TilewrightError(
            "images are a masked array: fill it first, as x.filled(0) does, with what it hides"
        )
    if array.dtype not in PIXELS:
        if array.dtype.newbyteorder("=") not in PIXELS:
            raise wrong_type(array.dtype)
        array = array.astype(array.dtype.newbyteorder("="))  # the other byte order
    if array.shape[1:] != shape:
        raise wrong_shape(array.shape, shape, name)
    array = np.ascontiguousarray(array)
    return array if array.flags.aligned else array.copy()


def _array(images: Any) -> NDArray[Any]:
    """What another library holds as an array in the host's memory, as a PyTorch tensor is."""
    kind = f"{type(images).__module__}.{type(images).__qualname__}".removeprefix("builtins.")
    if not hasattr(images, "__array__") and not hasattr(images, "__dlpack__"):
        raise TilewrightError(
            f"images are of type {kind}: give a NumPy array, uint8 or float32, of shape "
            "(images, channels, rows, columns)"
        )
    try:
        return np.asarray(images) if hasattr(images, "__array__") else np.from_dlpack(images)
    except Exception as error:  # whatever that library raises: on a GPU, with a gradient
        said = str(error).partition("\n")[0]
        raise TilewrightError(
            f"images of type {kind} cannot be read as a NumPy array: {said}"
        ) from error
