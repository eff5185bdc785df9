"""What a network says of images that it does not take: the same words wherever they lie."""

from __future__ import annotations

from tilewright.errors import TilewrightError
from tilewright.model.layers import Shape, dimensions


def wrong_type(said: object) -> TilewrightError:
    """Of images that are neither bytes nor float32: 0..255 as int64 could be pixels or values."""
    return TilewrightError(
        f"images are {said}: give uint8 for pixels of 0 to 255, as x.astype(np.uint8) does, or "
        "float32 for values that the network takes as they are, as x.astype(np.float32) does"
    )


def wrong_shape(found: Shape, wanted: Shape, name: str) -> TilewrightError:
    """Of a batch whose images are of another size, or that is none."""
    if len(found) != 1 + len(wanted):
        return TilewrightError(
            f"images are an array of shape {found}, but {name!r} takes batches of "
            f"{dimensions(wanted)}: (images, {', '.join(map(str, wanted))})"
        )
    return TilewrightError(
        f"images are {dimensions(found[1:])}, but {name!r} takes {dimensions(wanted)}"
    )


def too_many(images: int, batch: int) -> TilewrightError:
    return TilewrightError(
        f"{images:,} images at once, and the network was compiled for batches of up to {batch:,}: "
        "give fewer, or compile with a larger batch="
    )
