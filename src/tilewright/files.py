"""Files: where the shipped ones are, and writing so that nothing half-written is ever left."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tilewright.errors import TilewrightError

ASSETS = Path(__file__).parent / "assets"


def cache_home() -> Path:
    """Where fetched data sets and compiled kernels are kept."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("tilewright"))


def history_file() -> Path:
    """Where results are kept, unless a command is told another file."""
    import platformdirs

    return Path(platformdirs.user_data_dir("tilewright")) / "history.sqlite"


def file_name(name: str) -> str:
    """A name as a file name: what would lead to another folder, or hide it, is left out."""
    return re.sub(r"[^\w.-]+", "-", name).strip(".-") or "network"


def reason(error: OSError) -> str:
    """What the system said, without Python's errno and path decoration."""
    return error.strerror or str(error)


def check_file(path: Path) -> None:
    """Refuse anything but a plain file: a device or a pipe could be read for ever."""
    try:
        if path.is_file():
            return
        problem = "it is a folder" if path.is_dir() else "it is not a plain file"
        problem = problem if path.exists() else "No such file or directory"
    except OSError as error:
        problem = reason(error)
    raise TilewrightError(f"cannot read {path}: {problem}")


def check_writable(path: Path) -> None:
    """Refuse an output path before the work starts rather than after it."""
    try:
        if path.is_dir():
            raise TilewrightError(f"cannot write {path}: it is a folder")
        if not _special(path) and _standard(path) is None:
            with _temporary(_followed(path)):
                pass
    except OSError as error:
        raise TilewrightError(f"cannot write {path}: {reason(error)}") from error


@contextmanager
def atomic_write(path: Path, mode: int | None = None) -> Iterator[IO[bytes]]:
    """Open a temporary file beside `path` that takes its name only when all went well.

    A link is followed. What is not a plain file (a device, a pipe) is written straight into, and so
    is what the program prints to, by its name in `/dev`. A file that was there keeps its
    permissions, a new one gets the usual ones; `mode` decides otherwise.
    """
    try:
        if (stream := _standard(path)) is not None:
            with os.fdopen(os.dup(stream), "wb") as straight:
                yield straight
            return
        if _special(path):
            with path.open("wb") as straight:
                yield straight
            return
        target = _followed(path)
        with _temporary(target, _mode(target) if mode is None else mode) as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
            Path(handle.name).replace(target)
    except OSError as error:
        raise TilewrightError(f"cannot write {path}: {reason(error)}") from error


def _followed(path: Path) -> Path:
    """Where a link leads, if it does."""
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return target


def _mode(target: Path) -> int | None:
    """The permissions of what is replaced, if anything is."""
    with suppress(FileNotFoundError):
        return stat.S_IMODE(target.stat().st_mode)
    return None


@contextmanager
def _temporary(target: Path, mode: int | None = None) -> Iterator[IO[bytes]]:
    """A file beside the target that is gone afterwards, unless it was renamed.

    Without a mode it has the permissions that any new file gets.
    """

    def create(path: str, flags: int) -> int:
        return os.open(path, flags, 0o666 if mode is None else mode)

    # The name is known before the file is there: whatever interrupts us, it is removed.
    path = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with open(path, "xb", opener=create) as handle:
            if mode is not None:
                os.fchmod(handle.fileno(), mode)  # the system took away what the umask says
            yield handle
    finally:
        path.unlink(missing_ok=True)


def _standard(path: Path) -> int | None:
    """Standard output or error, if the path is a name of it, as `/dev/stdout` is."""
    if not str(path).startswith(("/dev/", "/proc/")):
        return None
    for stream in (1, 2):
        with suppress(OSError):
            if os.path.samestat(path.stat(), os.fstat(stream)):
                return stream
    return None


def _special(path: Path) -> bool:
    return path.exists() and not path.is_file()
