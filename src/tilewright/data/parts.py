"""A data set in parts, each of which is read where it is needed.

Only headers are read here, so a set may be larger than the memory of any machine: whoever computes
a part reads it, by the same readers and brought to the same shape as when all is read at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tilewright.data import arrays, catalogue, cifar10, drawn, fashion_mnist, folder
from tilewright.data.dataset import Dataset, Wanted
from tilewright.errors import TilewrightError, unknown
from tilewright.files import reason
from tilewright.model.layers import Shape

# Of a part's images as the network takes them.
LARGEST_BYTES = 64 << 20


@dataclass(frozen=True)
class Part:
    """Some images of a data set, from its `first` on. Pickled, it is a few hundred bytes, and the
    images only where they are a program's own.
    """

    first: int
    images: int
    shape: Shape
    stored: Callable[[Wanted], Dataset]

    def read(self) -> Dataset:
        """The images and their labels, as the network takes them."""
        return catalogue.fitted(self.stored(Wanted(self.shape)), self.shape)


@dataclass(frozen=True)
class Parts:
    """All of a data set, in order. `source` says what it is, for people."""

    source: str
    all: tuple[Part, ...]

    @property
    def images(self) -> int:
        return sum(part.images for part in self.all)


@dataclass(frozen=True)
class _Stored:
    """A file, a folder of pictures or arrays: how many images, and what reads some of them, given
    the first and their number.
    """

    images: int
    some: Callable[[int, int], Callable[[Wanted], Dataset]]


@dataclass(frozen=True)
class Listed:
    """A data set of which nothing but headers was read."""

    source: str
    shape: Shape
    images: int
    stored: tuple[_Stored, ...]

    def cut(self, batch: int, workers: int) -> Parts:
        """Parts of whole batches.

        They are so small that each of the workers gets some, and that one which is lost takes
        little with it.
        """
        size = part_size(self.images, self.shape, batch, workers)
        return Parts(self.source, tuple(_cut(self.stored, self.images, self.shape, size)))


def list_data(source: catalogue.Source, shape: Shape, images: int | None) -> Listed:
    """The first `images` of a data set for a network of this input shape."""
    words, found = _stored(source, shape, images)
    there = sum(each.images for each in found)
    if images is not None and images > there:
        raise TilewrightError(f"--images {images}: {words} has {there} images")
    if not there:
        raise TilewrightError(f"{words}: holds no images")
    return Listed(words, shape, there if images is None else images, tuple(found))


def part_size(images: int, shape: Shape, batch: int, workers: int) -> int:
    """The images of a part: eight for each worker, or more where they would be too large."""
    batches = -(-images // (batch * 8 * workers))
    fitting = LARGEST_BYTES // (math.prod(shape) * batch)
    return batch * max(1, min(batches, fitting))


def _cut(found: Sequence[_Stored], images: int, shape: Shape, size: int) -> Iterator[Part]:
    first = 0
    for stored in found:
        here = min(stored.images, images - first)
        for start in range(0, here, size):
            many = min(size, here - start)
            yield Part(first + start, many, shape, stored.some(start, many))
        first += here


def _stored(
    source: catalogue.Source, shape: Shape, images: int | None
) -> tuple[str, list[_Stored]]:
    """What a data set is, in words, and its files."""
    if not isinstance(source, str | Path):
        whole = arrays.given(source, Wanted(shape))
        return whole.source, [_Stored(len(whole), partial(_arrays, whole))]
    path = Path(source)
    if str(source) == drawn.NAME:
        count = drawn.COUNT if images is None else images
        return drawn.SOURCE, [_Stored(count, lambda start, many: partial(_drawn, start, many))]
    if str(source) in catalogue.ENTRIES:
        return str(source), _files(catalogue.located(str(source)))
    if not path.exists():
        if len(path.parts) > 1 or path.suffix:
            raise TilewrightError(f"data {str(path)!r} does not exist")
        raise unknown("data set", str(source), [*catalogue.ENTRIES, drawn.NAME])
    try:
        # Workers may have been started in another folder.
        return str(path), _folder(path.resolve()) if path.is_dir() else _files([path.resolve()])
    except OSError as error:
        raise TilewrightError(f"cannot read {path}: {reason(error)}") from error


def _folder(path: Path) -> list[_Stored]:
    if cifar10.is_folder(path):
        return _files(cifar10.batches_of(path))
    if images := fashion_mnist.images_of(path):
        return _files([images])
    if files := catalogue.shards_of(path):
        return _files(files)
    if folder.is_folder(path):
        found = folder.labelled(path)
        words = folder.described(path, found)
        # Each part carries the names of its own pictures only.
        return [_Stored(len(found), lambda start, many: partial(
            folder.read_some, path, found[start : start + many], words))]  # fmt: skip
    raise catalogue.no_images(path)


def _files(paths: Sequence[Path]) -> list[_Stored]:
    return [_Stored(catalogue.count_of(path), partial(_within, path)) for path in paths]


def _within(path: Path, start: int, many: int) -> Callable[[Wanted], Dataset]:
    return partial(_read, path, start, many)


def _read(path: Path, start: int, many: int, wanted: Wanted) -> Dataset:
    return catalogue.open_stored(path, Wanted(wanted.shape, many, start))


def _arrays(whole: Dataset, start: int, many: int) -> Callable[[Wanted], Dataset]:
    labels = None if whole.labels is None else whole.labels[start : start + many]
    return partial(arrays.given, (whole.images[start : start + many], labels))


def _drawn(start: int, many: int, wanted: Wanted) -> Dataset:
    assert wanted.shape is not None
    return drawn.pictures(wanted.shape, many, start)
