"""The folder of a cluster's files: gone with the command, or, if that was killed, by the next.

A killed command (SIGKILL, no memory left) cannot remove anything. Its folder is known as one of
ours by a locked file in it, whose lock the system gives up with the process, however it ends. Ray's
own processes end soon after; one that is only starting would make the folder once more.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX, HELD = "tw-ray-", "held"
LONGEST_FOLDER = 30  # characters: sockets lie in it, whose paths have 107 at most


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder with a short path, which is removed afterwards. So are those of the dead."""
    usual = tempfile.gettempdir()
    above = Path(usual if len(usual) <= LONGEST_FOLDER else "/tmp")
    remove_dead(above)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=above))
    lock = _lock(folder)
    try:
        yield folder
    finally:
        # Its processes have been told to end, and may still write a last line.
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _lock(folder: Path) -> int:
    """Locked before it has its name: nobody sees it free while its process lives."""
    unnamed = folder / "unnamed"
    lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    unnamed.rename(folder / HELD)
    return lock


def remove_dead(above: Path) -> None:
    """Folders of ours whose processes are gone; all others are left alone."""
    for folder in above.glob(f"{PREFIX}*"):
        if folder.is_symlink():
            continue
        # Another user's, one that has just gone, one whose process lives.
        with suppress(PermissionError, FileNotFoundError, NotADirectoryError, BlockingIOError):
            if (folder / HELD).lstat().st_uid != os.getuid():
                continue
            lock = os.open(folder / HELD, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not _in_use(folder):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _in_use(folder: Path) -> bool:
    """Whether a process names it (on Linux): then it is left to a later start."""
    name = os.fsencode(folder)
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended, or is another user's
            if name in place.read_bytes():
                return True
    return False
