"""Fetching the public data sets: checksummed, resumable, into the folder of fetched data."""

from __future__ import annotations

import fcntl
import logging
import os
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.data import cifar10
from tilewright.errors import TilewrightError
from tilewright.files import atomic_write, reason

# Called with the file's name, the bytes there so far, and how many there will be (0: unknown).
Progress = Callable[[str, int, int], None]

CHUNK = 1 << 18
TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class Download:
    """A file to fetch: where its publisher keeps it, and the checksum the publisher states."""

    url: str
    checksum: str

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
DOWNLOADS = {
    "cifar10": (
        Download(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "md5:c32a1d4ab5d03f1284b67883e8d87530",
        ),
    ),
    "fashion-mnist": (
        Download(f"{_FASHION}train-images-idx3-ubyte.gz", "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        Download(f"{_FASHION}train-labels-idx1-ubyte.gz", "md5:25c81989df183df01b3e8a0aad5dffbe"),
        Download(f"{_FASHION}t10k-images-idx3-ubyte.gz", "md5:bef4ecab320f06d8554ea6380940ec79"),
        Download(f"{_FASHION}t10k-labels-idx1-ubyte.gz", "md5:bb300cfdad3c16e7a12a480ee83cd310"),
    ),
}


def fetch(folder: Path, progress: Progress, downloads: tuple[Download, ...]) -> None:
    """Get every file of a data set into `folder`; what is there and right is not fetched again."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TilewrightError(f"cannot create {folder}: {reason(error)}") from error
    with _alone(folder):
        for download in downloads:
            path = _retrieve(download, folder, progress)
            if path.name.endswith(".tar.gz"):
                _unpack_batches(path, folder)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time fetches into a folder; who comes later finds what is there."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems know no locks; checksums remain
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _retrieve(download: Download, folder: Path, progress: Progress) -> Path:
    import pooch
    import requests

    pooch.get_logger().setLevel(logging.WARNING)
    try:
        path = pooch.retrieve(
            download.url,
            download.checksum,
            fname=download.name,
            path=folder,
            downloader=_Resumable(folder / f"{download.name}.part", progress),
        )
    except requests.RequestException as error:
        cause = error.args[0] if error.args else error
        detail = " ".join(str(getattr(cause, "reason", cause)).split())
        raise TilewrightError(
            f"cannot fetch {download.url}: {detail}; run the command again to continue"
        ) from error
    except OSError as error:
        raise TilewrightError(
            f"cannot fetch {download.url} to {folder / download.name}: {reason(error)}"
        ) from error
    except ValueError as error:  # pooch's word for a wrong checksum; it kept nothing
        raise TilewrightError(
            f"{download.url}: what arrived does not have the checksum {download.checksum}"
        ) from error
    return Path(path)


@dataclass(frozen=True)
class _Resumable:
    """A downloader for pooch that keeps what it got in a `.part` file and goes on from there."""

    part: Path
    progress: Progress

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        import requests

        done = self.part.stat().st_size if self.part.exists() else 0
        # Without the first header a server may compress once more what is compressed already.
        headers = {"Accept-Encoding": "identity"}
        if done:
            headers["Range"] = f"bytes={done}-"
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT_SECONDS) as reply:
            if reply.status_code == requests.codes.requested_range_not_satisfiable:
                self.part.unlink()
                self(url, output_file, pooch)
                return
            reply.raise_for_status()
            if reply.status_code != requests.codes.partial_content:
                done = 0
            total = done + int(reply.headers.get("Content-Length", 0))
            with self.part.open("ab" if done else "wb") as file:
                for chunk in reply.iter_content(CHUNK):
                    file.write(chunk)
                    done += len(chunk)
                    self.progress(self.part.stem, done, total)
        if done < total:
            raise requests.ConnectionError(f"the connection ended after {done} of {total} bytes")
        self.part.replace(output_file)


def _unpack_batches(archive: Path, folder: Path) -> None:
    """CIFAR-10's six batches, out of their archive and into `folder`."""
    wanted = {*cifar10.TRAINING, cifar10.TEST}
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = Path(member.name).name
                if name in wanted and member.isfile():
                    content = tar.extractfile(member)
                    assert content is not None  # a plain file always has content
                    with atomic_write(folder / name) as target:
                        while piece := content.read(CHUNK):
                            target.write(piece)
                    wanted.remove(name)
    except (tarfile.TarError, EOFError) as error:
        raise TilewrightError(f"{archive}: damaged archive: {error}") from error
    if wanted:
        raise TilewrightError(f"{archive}: {', '.join(sorted(wanted))} not in it")
