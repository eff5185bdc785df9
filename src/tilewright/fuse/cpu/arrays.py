"""Arrays as machine code wants them: aligned, and known by their address."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

ALIGNMENT = 64


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
