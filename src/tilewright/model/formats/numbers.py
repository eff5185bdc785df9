"""Numbers as files hold them, of a type that NumPy has not."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def bfloat16(data: bytes) -> NDArray[np.float32]:
    """The upper halves of float32 numbers, as those numbers."""
    return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
