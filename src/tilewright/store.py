"""What was compiled or measured, on disk: keyed, checksummed, private to its owner.

A store is a folder of things of one kind, each under a key that is a hash of everything it depends
on. A thing starts with a checksum over its key and content, so that one that is damaged, or lies
under another's name, is not there; it is written under another name and renamed, so that processes
may keep the same one at once; the longest unused go when there are too many. What is read may be
run as machine code: a folder or file that others own or can write is not trusted, and not used.

A store that is unwritable, full or damaged costs time, never a result.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tilewright.errors import TilewrightError
from tilewright.files import atomic_write, cache_home, reason
from tilewright.terminal import say_once

ENDING = ".kept"
CHECKSUM_BYTES = 32
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class Limits:
    """What is kept of a kind: the count, and the bytes of all of it together.

    To find out takes a look at every file: it is done once in `between` times that a process
    keeps something.
    """

    count: int
    bytes: int
    between: int = 1


# A folder must not grow for ever.
KINDS = {
    # Proving `fused` takes hundreds of small networks of 15 KB each.
    "compiled": Limits(count=4000, bytes=256 << 20, between=50),
    # The proof of a GPU ladder takes some 1,200 kernels of 10 to 100 KB.
    "cubins": Limits(count=8000, bytes=512 << 20, between=100),
    "plans": Limits(count=2000, bytes=4 << 20, between=100),
    "trials": Limits(count=2000, bytes=4 << 20, between=10),
    "proofs": Limits(count=2000, bytes=2 << 20, between=10),
    "ceilings": Limits(count=100, bytes=1 << 20),
    "numba": Limits(count=100, bytes=32 << 20),
}

# How many things this process has kept in a folder.
_kept: defaultdict[Path, Iterator[int]] = defaultdict(itertools.count)


def open_store(kind: str) -> Store:
    """This user's store of a kind, one of `KINDS`."""
    return Store(cache_home() / kind, KINDS[kind])


def key_of(*parts: str | bytes) -> str:
    """A key for what depends on all of these."""
    key = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        key.update(len(content).to_bytes(8, "big") + content)
    return key.hexdigest()[:32]


@dataclass(frozen=True)
class Store:
    """Things of one kind in one folder. A key is letters, digits and hyphens: see `key_of`."""

    folder: Path
    limits: Limits

    def read(self, key: str) -> bytes | None:
        """The content kept under a key, if it is there, whole, and ours."""
        if self.distrusted() is not None:
            return None
        path = self._path(key)
        try:
            kept = _read_own(path, self.limits.bytes + CHECKSUM_BYTES)
        except OSError:
            return None
        if kept is None or kept[:CHECKSUM_BYTES] != _checksum(key, kept[CHECKSUM_BYTES:]):
            return None
        with suppress(OSError):  # on a disk that cannot be written: nothing is dropped there
            os.utime(path)
        return kept[CHECKSUM_BYTES:]

    def keep(self, key: str, content: bytes) -> str | None:
        """Keep content under a key; the answer is why that was not possible, if so."""
        if len(content) > self.limits.bytes:
            return f"{len(content):,} bytes are more than the {self.limits.bytes:,} that are kept"
        try:
            make_private(self.folder)
            if (problem := self.distrusted()) is not None:
                return problem
            with atomic_write(self._path(key), mode=0o600) as file:
                file.write(_checksum(key, content) + content)
            if next(_kept[self.folder]) % self.limits.between == 0:
                self._drop_surplus()
        except (OSError, TilewrightError) as error:
            return reason(error) if isinstance(error, OSError) else str(error)
        return None

    @property
    def empty(self) -> bool:
        return next(self.folder.glob(f"*{ENDING}"), None) is None

    def entries(self) -> list[Path]:
        """The files of what is kept, the last used first."""
        found = []
        for path in self.folder.glob(f"*{ENDING}"):
            with suppress(FileNotFoundError):  # another process dropped it
                found.append((path.stat().st_mtime_ns, path))
        return [path for _, path in sorted(found, reverse=True)]

    def distrusted(self) -> str | None:
        """Why this folder is not used, if so; also said once on standard error."""
        try:
            found = self.folder.stat()
        except OSError:
            return None  # what cannot be looked at cannot be read either
        if not stat.S_ISDIR(found.st_mode):
            return f"{self.folder} is not a folder"
        if found.st_uid != os.geteuid():
            problem = "it belongs to another user: delete it, or set XDG_CACHE_HOME"
        elif found.st_mode & OTHERS_WRITE:
            problem = "others can write to it: `tilewright cache clear` makes a new one"
        else:
            return None
        say_once(f"{self.folder} is not used, {problem}")
        return f"{self.folder} is not used, {problem}"

    def _path(self, key: str) -> Path:
        assert re.fullmatch("[A-Za-z0-9-]{1,100}", key), key
        return self.folder / f"{key}{ENDING}"

    def _drop_surplus(self) -> None:
        total = 0
        for count, path in enumerate(self.entries(), start=1):
            with suppress(FileNotFoundError):
                total += path.stat().st_size
                if count > self.limits.count or total > self.limits.bytes:
                    path.unlink()


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for this user alone."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    for place in reversed(missing):
        place.mkdir(mode=0o700, exist_ok=True)


def _checksum(key: str, content: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\n" + content).digest()


def _read_own(path: Path, largest: int) -> bytes | None:
    """A plain file of this user's that nobody else can write: checked on the open file itself."""
    # Without O_NONBLOCK a pipe of that name would be waited for.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        found = os.fstat(file.fileno())
        own = found.st_uid == os.geteuid() and not found.st_mode & OTHERS_WRITE
        if not (own and stat.S_ISREG(found.st_mode) and found.st_size <= largest):
            return None
        return file.read(largest)
