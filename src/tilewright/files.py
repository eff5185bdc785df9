"""Files: where the shipped ones are, and writing so that nothing half-written is ever left."""

from __future__ import annotations

import os
import stat
import tempfile
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
            with _temporary(path.resolve()):
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
        target = path.resolve()
        with _temporary(target) as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
            temporary = Path(handle.name)
            temporary.chmod(_usual_mode(target) if mode is None else mode)
            temporary.replace(target)
    except OSError as error:
        raise TilewrightError(f"cannot write {path}: {reason(error)}") from error


def _usual_mode(target: Path) -> int:
    """The permissions of what is replaced, or those that any new file gets."""
    with suppress(FileNotFoundError):
        return stat.S_IMODE(target.stat().st_mode)
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


@contextmanager
def _temporary(target: Path) -> Iterator[IO[bytes]]:
    """A file beside the target that is gone afterwards, unless it was renamed."""
    handle = tempfile.NamedTemporaryFile(  # noqa: SIM115 - closed below
        dir=target.parent, prefix=f".{target.name}.", suffix=".part", delete=False
    )
    try:
        yield handle
    finally:
        try:
            handle.close()  # which writes what is left, and fails if the disk is full
        finally:
            Path(handle.name).unlink(missing_ok=True)


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
