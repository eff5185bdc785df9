"""What PoCL has compiled, kept on disk.

PoCL loads and runs what it finds in its folder, and ends the process where that fails. Without a
folder to write in it is not there at all, and another device would be taken in its place. So the
folder is looked at before PoCL is: who can write to it, whether there is room, and whether what was
compiled earlier is as it was.

Why not in the store, as machine code for other devices is? PoCL unpacks a program's binary into
this very folder and loads it from there, so that it would have to be guarded all the same, and
everything be kept twice. Its own cache has a kernel in 0.03 s where the first build takes 0.6 s and
a binary 0.004 s (CPU seconds, three of the rung `tuned`'s, PoCL 3.0, 2026-11-15).
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from tilewright.errors import TilewrightError
from tilewright.files import atomic_write, reason

KERNELS = "pocl-kernels"  # PoCL's folder among what we keep
FOLDER = "POCL_CACHE_DIR"  # what PoCL itself calls it
# Bytes that must be free on its disk, enough for a whole ladder, since PoCL ends the process where
# there are no more; and bytes that must really fit, as a disk says nothing of a user's share.
FREE, ROOM = 64 * 2**20, 2**20
RECORD = "as-they-were.json"
CHANGING = ("last_accessed", "tempfile_", RECORD)

# Of every file, by its path in the folder: its bytes, and when it was written.
State = dict[str, list[int]]


def keep_kernels(usual: Path) -> str | None:
    """Tell PoCL, before it is loaded, to keep kernels where the user has said, or in `usual`.

    Where that cannot be, they are kept in a temporary folder. Returns what a user of PoCL should
    know of that.
    """
    said = os.environ.get(FOLDER)
    folder = Path(said or usual)
    if problem := _no_room(folder, private=not said):
        notice = f"PoCL cannot keep kernels in {folder} ({problem})"
        try:
            os.environ[FOLDER] = _temporary()
        except OSError as error:
            return f"{notice}, nor in a temporary folder ({reason(error)})"
        return f"{notice} and compiles them every time"
    os.environ[FOLDER] = str(folder)
    if not said:
        drop_changed(folder)
        atexit.register(record, folder)
    return None


def drop_changed(folder: Path) -> None:
    """Delete each program of which a file is not as it was when it was recorded."""
    try:
        recorded: State = json.loads((folder / RECORD).read_bytes())
        known = {path: (size, time) for path, (size, time) in recorded.items()}
    except FileNotFoundError:
        return
    except (OSError, ValueError, TypeError, AttributeError):  # the record itself has changed
        for entry in folder.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
        return
    found = _state(folder)
    for path, state in known.items():
        if path in found and tuple(found[path]) != state:
            # A program is two folders down: AB/CDEFGH.
            shutil.rmtree(folder.joinpath(*Path(path).parts[:2]), ignore_errors=True)


def record(folder: Path) -> None:
    """Remember every file as it is, at the end of a process that PoCL has not ended."""
    text = json.dumps(_state(folder))
    # The disk may be full by now: what is not recorded is compiled anew.
    with suppress(TilewrightError), atomic_write(folder / RECORD) as file:
        file.write(text.encode())


def _state(folder: Path) -> State:
    found: State = {}
    inside = [""]
    while inside:
        place = inside.pop()
        # Another process may work here, too: what is gone meanwhile is not there.
        with suppress(FileNotFoundError), os.scandir(folder / place) as entries:
            for entry in entries:
                path = f"{place}/{entry.name}" if place else entry.name
                if entry.is_dir(follow_symlinks=False):
                    inside.append(path)
                elif not entry.name.startswith(CHANGING):
                    state = entry.stat(follow_symlinks=False)
                    found[path] = [state.st_size, state.st_mtime_ns]
    return found


def _no_room(folder: Path, private: bool) -> str | None:
    """Why kernels cannot be kept in a folder; nobody else may write to a `private` one."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.stat()
        if private and (state.st_uid != os.geteuid() or state.st_mode & 0o022):
            return "others can write there"
        if shutil.disk_usage(folder).free < FREE:
            return f"less than {FREE >> 20} MiB are free there"
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(ROOM))
    except OSError as error:
        return reason(error)
    return None


def _temporary() -> str:
    """A folder for as long as this process runs."""
    kept = tempfile.TemporaryDirectory(prefix="tilewright-pocl-", ignore_cleanup_errors=True)
    atexit.register(kept.cleanup)
    return kept.name
