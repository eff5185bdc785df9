"""A set of images with their labels, and the checks every reader shares."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.environment import memory_bytes
from tilewright.errors import TilewrightError
from tilewright.model.layers import Shape, dimensions

# Of all images of a data set in memory; small files can be packed that become any size.
LARGEST_BYTES = 4 << 30


@dataclass(frozen=True)
class Wanted:
    """What a reader is asked for: images of this shape (None: any), so many (None: all) from the
    `start`-th on.

    It reads no more than that, and refuses what its file's header rules out before it reads on.
    """

    shape: Shape | None = None
    images: int | None = None
    start: int = 0

    def __post_init__(self) -> None:
        if self.images is not None and self.images < 1:
            raise TilewrightError(f"--images {self.images}: there must be at least one")

    def count(self, stored: int) -> int:
        """How many to read of those that are stored."""
        left = stored - self.start
        return left if self.images is None else min(self.images, left)


ALL = Wanted()


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images (image, channel, y, x), as uint8 pixels or as float32 values ready for the network.

    `labels` is None where the source has none. `source` says what was read, for people; `classes`
    are names of the labels, as far as they are known.
    """

    name: str
    images: NDArray[Any]
    labels: NDArray[np.int64] | None
    source: str
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # Kernels take a batch as one piece of memory.
        object.__setattr__(self, "images", np.ascontiguousarray(self.images))

    def __len__(self) -> int:
        return len(self.images)

    @property
    def shape(self) -> Shape:
        """The shape of one image."""
        return tuple(self.images.shape[1:])

    def first(self, count: int | None) -> Dataset:
        """The first `count` images; all of them without a count."""
        if count is None:
            return self
        if not 1 <= count <= len(self):
            raise TilewrightError(f"--images {count}: {self.source} has {len(self)} images")
        labels = None if self.labels is None else self.labels[:count]
        return replace(self, images=self.images[:count], labels=labels)

    def resized(self, height: int, width: int) -> Dataset:
        """The same pictures enlarged or reduced to height x width (bilinear), still bytes."""
        if self.shape[1:] == (height, width):
            return self
        # Loaded only here: most runs never resize.
        from PIL import Image

        check_size(len(self), (self.shape[0], height, width), 1, self.source)
        pictures = np.empty((*self.images.shape[:2], height, width), np.uint8)
        for source, target in zip(
            self.images.reshape(-1, *self.shape[1:]),
            pictures.reshape(-1, height, width),
            strict=True,
        ):
            picture = Image.fromarray(source).resize((width, height), Image.Resampling.BILINEAR)
            target[:] = np.asarray(picture)
        note = f"{self.source}, {dimensions(self.shape[1:])} resized to {height}x{width}"
        return replace(self, images=pictures, source=note)


def check_shape(found: Shape, wanted: Shape | None, source: str) -> None:
    """Images are what the network takes."""
    if wanted is not None and found != wanted:
        raise TilewrightError(
            f"{source}: images are {dimensions(found)}, but the network takes {dimensions(wanted)}"
        )


def check_size(images: int, shape: Shape, item: int, source: str) -> None:
    """Images of `item` bytes a value are not larger than what is read at once."""
    total, limit = images * math.prod(shape) * item, min(LARGEST_BYTES, memory_bytes() // 2)
    if total > limit:
        raise TilewrightError(
            f"{source}: {images:,} images of {dimensions(shape)} are {total:,} bytes, and no more "
            f"than {limit:,} are read at once: take fewer with --images"
        )


def checked_labels(labels: NDArray[Any], classes: int, source: str) -> NDArray[np.int64]:
    """Labels as int64, each one a class."""
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if wrong.size:
        raise TilewrightError(
            f"{source}: label {labels[wrong[0]]} of image {wrong[0]} is out of range: "
            f"there are {classes} classes, 0 to {classes - 1}"
        )
    return labels.astype(np.int64)
