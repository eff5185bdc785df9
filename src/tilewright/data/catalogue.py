"""Data sets by name, any file or folder of images by its path, and a program's own arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tilewright.data import arrays, cifar10, drawn, fashion_mnist, folder, parquet
from tilewright.data.dataset import ALL, Dataset, Wanted, check_shape, check_size
from tilewright.errors import TilewrightError, unknown
from tilewright.files import ASSETS, cache_home, reason
from tilewright.model.layers import Shape, dimensions

SAMPLE = "fashion-mnist-sample"
CIFAR10: Shape = (3, 32, 32)
SHARDS = (".parquet", ".npz")  # of which a folder may hold many
# All that images may be given as.
Source = str | Path | arrays.Arrays


def home() -> Path:
    """Where fetched data sets are kept."""
    return cache_home() / "data"


@dataclass(frozen=True)
class Entry:
    """A data set with a name: what it is, the folders it may lie in, and how it is read there.

    `find` gives the files in a folder, or nothing; `read` turns them into a data set.
    """

    name: str
    about: str
    fetched_as: str | None
    folders: Callable[[Path], Sequence[Path]]
    find: Callable[[Path], list[Path]]
    read: Callable[[list[Path], Wanted], Dataset]

    def locate(self, kept: Path) -> list[Path]:
        """The files of this data set on this machine, given the folder of fetched ones."""
        for place in self.folders(kept):
            if place.is_dir() and (found := self.find(place)):
                return found
        return []


def _cifar10(names: Sequence[str]) -> Callable[[Path], list[Path]]:
    def find(place: Path) -> list[Path]:
        paths = [place / name for name in names]
        return paths if all(path.is_file() for path in paths) else []

    return find


def _fashion(part: str) -> Callable[[Path], list[Path]]:
    def find(place: Path) -> list[Path]:
        images = fashion_mnist.find(place, part)
        return [images] if images else []

    return find


def _read_fashion(paths: list[Path], wanted: Wanted) -> Dataset:
    return replace(fashion_mnist.read(paths[0], wanted), classes=fashion_mnist.NAMES)


def _cifar10_folders(kept: Path) -> list[Path]:
    return [kept / "cifar10"]


def _fashion_folders(kept: Path) -> list[Path]:
    return [kept / "fashion-mnist", fashion_mnist.DEBIAN_FOLDER]


def _bundled(kept: Path) -> list[Path]:
    return [ASSETS / SAMPLE]


ENTRIES = {
    entry.name: entry
    for entry in (
        Entry(
            SAMPLE, "Fashion-MNIST's first 1,000 test images", None,
            _bundled, _fashion(fashion_mnist.TEST), _read_fashion,
        ),
        Entry(
            "fashion-mnist", "its 10,000 test images, 28x28 grey", "fashion-mnist",
            _fashion_folders, _fashion(fashion_mnist.TEST), _read_fashion,
        ),
        Entry(
            "fashion-mnist-train", "its 60,000 training images", "fashion-mnist",
            _fashion_folders, _fashion(fashion_mnist.TRAINING), _read_fashion,
        ),
        Entry(
            "cifar10", "its 50,000 training images, 32x32 colour", "cifar10",
            _cifar10_folders, _cifar10(cifar10.TRAINING), cifar10.read,
        ),
        Entry(
            "cifar10-test", "its 10,000 test images", "cifar10",
            _cifar10_folders, _cifar10([cifar10.TEST]), cifar10.read,
        ),
    )
}  # fmt: skip


def default_for(shape: Shape) -> str:
    """What a network of this input shape runs over when nothing is named: the data set that fits
    it, or pictures drawn here where that is not on this machine.
    """
    if shape[0] != 1 and (shape != CIFAR10 or not ENTRIES["cifar10-test"].locate(home())):
        return drawn.NAME
    return fitting(shape)


def fitting(shape: Shape) -> str:
    """The data set that networks of this input shape are made for."""
    if shape[0] == 1:
        return SAMPLE
    if shape == CIFAR10:
        return "cifar10-test"
    raise TilewrightError(
        f"no data set of {dimensions(shape)} images is known: name one with --data"
    )


def open_data(source: Source, shape: Shape, images: int | None = None) -> Dataset:
    """The first `images` of a named data set, folder or file, as a network of `shape` takes them.

    Fashion-MNIST and pictures are resized to the network's height and width; CIFAR-10 and arrays
    must fit as they are.
    """
    wanted = Wanted(shape, images)
    if not isinstance(source, str | Path):
        return arrays.given(source, wanted).first(images)
    path = Path(source)
    if str(source) == drawn.NAME:
        return drawn.pictures(shape, wanted.images)
    if str(source) in ENTRIES:
        dataset = open_named(str(source), wanted)
    elif path.exists():
        dataset = open_stored(path, wanted)
    elif len(path.parts) > 1 or path.suffix:
        raise TilewrightError(f"data {str(path)!r} does not exist")
    else:
        raise unknown("data set", str(source), [*ENTRIES, drawn.NAME])
    return fitted(dataset.first(images), shape)


def fitted(dataset: Dataset, shape: Shape) -> Dataset:
    """A data set as a network of this input shape takes it."""
    if dataset.shape[0] == shape[0] and dataset.name == "fashion-mnist":
        dataset = dataset.resized(shape[1], shape[2])
    check_shape(dataset.shape, shape, dataset.source)
    return dataset


def open_parts(folder: Path | None, shape: Shape) -> tuple[Dataset, Dataset]:
    """Training and test images for a network of input `shape`, from a folder that has both.

    Without a folder: Fashion-MNIST for one channel, CIFAR-10 for three of 32x32.
    """
    if folder is None:
        test = fitting(shape).replace(SAMPLE, "fashion-mnist")
        training = {"fashion-mnist": "fashion-mnist-train", "cifar10-test": "cifar10"}[test]
        return open_data(training, shape), open_data(test, shape)
    if cifar10.is_folder(folder):
        return open_data(folder, shape), open_data(folder / cifar10.TEST, shape)
    found = [
        fashion_mnist.find(folder, part) for part in (fashion_mnist.TRAINING, fashion_mnist.TEST)
    ]
    if not (found[0] and found[1]):
        raise TilewrightError(f"{folder}: not both training and test images (CIFAR-10 or IDX)")
    return open_data(found[0], shape), open_data(found[1], shape)


def open_named(name: str, wanted: Wanted = ALL) -> Dataset:
    """A data set of the catalogue as it is stored."""
    dataset = ENTRIES[name].read(located(name), wanted)
    return dataset if ENTRIES[name].fetched_as else replace(dataset, source=f"{name} (shipped)")


def located(name: str) -> list[Path]:
    """The files of a data set of the catalogue."""
    entry = ENTRIES[name]
    if found := entry.locate(home()):
        return found
    debian = " (or install Debian's dataset-fashion-mnist)" if "fashion" in name else ""
    raise TilewrightError(
        f"data set {name!r} is not on this machine: "
        f"get it with `tilewright data fetch {entry.fetched_as}`{debian}"
    )


def open_stored(path: Path, wanted: Wanted = ALL) -> Dataset:
    """The images of a file or folder, as they are stored.

    Only pictures take the shape wanted: each has its own size and must be brought to one.
    """
    try:
        return _open_folder(path, wanted) if path.is_dir() else _open_file(path, wanted)
    except OSError as error:  # a folder that cannot be listed; files report their own
        raise TilewrightError(f"cannot read {path}: {reason(error)}") from error
    except MemoryError as error:
        raise TilewrightError(f"{path}: too large for this machine's memory") from error


def _open_folder(path: Path, wanted: Wanted) -> Dataset:
    if cifar10.is_folder(path):
        return cifar10.read_folder(path, wanted)
    if fashion_mnist.images_of(path):
        return fashion_mnist.read_folder(path, wanted)
    if files := shards_of(path):
        return _joined(path, files, wanted)
    if folder.is_folder(path):
        return folder.read(path, wanted.shape or folder.first_shape(path), wanted.images)
    raise no_images(path)


def no_images(path: Path) -> TilewrightError:
    return TilewrightError(
        f"{path}: no images found (CIFAR-10 batches, IDX files, .npz or .parquet files, pictures)"
    )


def shards_of(path: Path) -> list[Path]:
    """The files of a folder that hold a data set in their order: all .parquet or all .npz."""
    for suffix in SHARDS:
        if files := sorted(file for file in path.glob(f"*{suffix}") if file.name[0] != "."):
            return files
    return []


def _joined(path: Path, files: Sequence[Path], wanted: Wanted) -> Dataset:
    """Files of one data set, one behind the other, no more of them than are wanted."""
    stored = [count_of(file) for file in files]
    found: list[Dataset] = []
    left = wanted.count(sum(stored))
    if wanted.shape is not None:
        check_size(left, wanted.shape, 1, str(path))
    for file, here in zip(files, stored, strict=True):
        if left and here:
            found.append(_open_file(file, Wanted(wanted.shape, min(here, left))))
            left -= len(found[-1])
    return joined(found, f"{path} ({len(files)} files)")


def joined(found: Sequence[Dataset], source: str) -> Dataset:
    """Data sets as one: all are pixels or all are values, and all have labels or none has."""
    if not found:
        raise TilewrightError(f"{source}: holds no images")
    kinds = {(each.shape, each.images.dtype, each.labels is None): each.source for each in found}
    if len(kinds) > 1:
        one, other, *_ = kinds.values()
        raise TilewrightError(
            f"{one} and {other} differ in their images' shape or type, or in having labels"
        )
    labels = [each.labels for each in found if each.labels is not None]
    return Dataset(
        found[0].name,
        np.concatenate([each.images for each in found]),
        np.concatenate(labels) if labels else None,
        source,
    )


def count_of(path: Path) -> int:
    """The images in a file, as its header or its size has it."""
    return _reader(path)[0](path)


def _open_file(path: Path, wanted: Wanted) -> Dataset:
    return _reader(path)[1](path, wanted)


def _reader(path: Path) -> tuple[Callable[[Path], int], Callable[[Path, Wanted], Dataset]]:
    """How the images of a file are counted, and how they are read."""
    if path.suffix == ".bin":
        return cifar10.count, lambda path, wanted: cifar10.read([path], wanted)
    if path.suffix == ".npz":
        return arrays.count, arrays.read
    if path.suffix == ".parquet":
        return parquet.count, parquet.read
    if fashion_mnist.is_images_file(path):
        return fashion_mnist.count, fashion_mnist.read
    raise TilewrightError(
        f"{path}: not a CIFAR-10 batch (.bin), an IDX images file "
        f"(*{fashion_mnist.IMAGES}[.gz]), an .npz or a .parquet"
    )
