"""Which place of a picture is nearest to each place of a larger or smaller one.

There are several answers, and files say which they mean. Places are computed in float32, as ONNX
Runtime and PyTorch do: ties fall where they fall there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.model.layers.sizes import LARGEST

Floats = NDArray[np.float32]
HALF = np.float32(0.5)

# How a place becomes a whole number.
ROUNDINGS: dict[str, Callable[[Floats], Floats]] = {
    # What is a millionth above a half is one to ONNX Runtime 1.31.
    "round_prefer_floor": lambda x: np.floor(x) + (x - np.floor(x) > HALF + np.float32(1e-6)),
    "round_prefer_ceil": lambda x: np.floor(x + HALF),
    "floor": np.floor,
    "ceil": np.ceil,
}


def nearest(size: int, wanted: int, scale: float, mode: str, rounding: str) -> list[int]:
    """For `wanted` places, which are `scale` times as many as the `size` there are."""
    if not 0 < wanted <= LARGEST or not scale > 0:
        raise TilewrightError(f"resizes {size} to {wanted}")
    if rounding not in ROUNDINGS:
        raise TilewrightError(f"nearest_mode is {rounding!r:.40}")
    out, times = np.arange(wanted, dtype=np.float32), np.float32(scale)
    match mode:
        case "half_pixel":
            places = (out + HALF) / times - HALF
        case "pytorch_half_pixel":
            places = (out + HALF) / times - HALF if wanted > 1 else np.zeros_like(out)
        case "asymmetric":
            places = out / times
        case "align_corners":
            places = out * np.float32(size - 1) / np.float32(max(1, wanted - 1))
        case _:
            raise TilewrightError(f"coordinate_transformation_mode is {mode!r:.40}")
    found = np.clip(ROUNDINGS[rounding](places), 0, size - 1)
    return [int(place) for place in found]


def by_torch(size: int, wanted: int, factor: float | None, exact: bool) -> list[int]:
    """As PyTorch multiplies: by the reciprocal of a factor that was given, or by the ratio."""
    if not 0 < wanted <= LARGEST or (factor is not None and not factor > 0):
        raise TilewrightError(f"resizes {size} to {wanted}")
    if not exact and wanted in (size, 2 * size):
        return [place * size // wanted for place in range(wanted)]  # whatever the factor
    step = np.float32(1 / factor if factor else size / wanted)
    out = np.arange(wanted, dtype=np.float32) + (HALF if exact else np.float32(0))
    return [int(place) for place in np.minimum(np.floor(out * step), size - 1)]
