"""Files: where the shipped ones are, and writing so that nothing half-written is ever left."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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


def check_writable(path: Path) -> None:
    """Refuse an output path before the work starts rather than after it."""
    if path.is_dir():
        raise TilewrightError(f"cannot write {path}: it is a folder")
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise TilewrightError(f"cannot write {path}: {reason(error)}") from error


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file beside `path` that takes its name only when all went well."""
    try:
        handle = tempfile.NamedTemporaryFile(  # noqa: SIM115 - closed below, where it is renamed
            dir=path.parent, prefix=f".{path.name}.", suffix=".part", delete=False
        )
    except OSError as error:
        raise TilewrightError(f"cannot write {path}: {reason(error)}") from error
    temporary = Path(handle.name)
    try:
        with handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        # A temporary file is private to its owner; the result gets the usual permissions.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise TilewrightError(f"cannot write {path}: {reason(error)}") from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
