"""Show what Tilewright keeps on disk, or clear compiled kernels and measured ceilings."""

from __future__ import annotations

import argparse
import os
import shutil
from contextlib import suppress
from pathlib import Path

from tilewright.errors import TilewrightError, unknown
from tilewright.files import cache_home, reason
from tilewright.store import OTHERS_WRITE

ACTIONS = ("show", "clear")
DATA = "data"
# What is made again when it is missed, by its folder.
CLEARED = {
    "compiled": "compiled kernels",
    "cubins": "compiled CUDA kernels",
    "plans": "plans of CUDA kernels",
    "trials": "short trials of plans",
    "proofs": "proofs of rungs",
    "ceilings": "measured ceilings",
    "pocl": "findings about PoCL",
    "pocl-kernels": "files of PoCL's compiler",
    "numba": "files of Numba's compiler",
    "judged": "kernel files' own, compiled",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", default="show", metavar="show|clear",
        help="show sizes (the default), or delete compiled kernels and measured ceilings; data "
        "sets stay",
    )  # fmt: skip


def main(arguments: argparse.Namespace) -> int:
    from tilewright.views import console, units

    if arguments.action not in ACTIONS:
        raise unknown("action", arguments.action, ACTIONS)
    screen, home = console.output(), cache_home()
    if arguments.action == "clear":
        for name, what in CLEARED.items():
            files = units.plural(_empty(home / name), "file")
            screen.print(f"{what}: deleted {files} from {home / name}", soft_wrap=True)
        return 0
    known = {**CLEARED, DATA: "fetched data"}
    others = sorted(path.name for path in _children(home) if path.name not in known)
    for name, what in (*known.items(), *((name, "something else") for name in others)):
        sizes = _files(home / name)
        files, total = units.plural(len(sizes), "file"), units.size(sum(sizes.values()))
        screen.print(f"{what}: {files}, {total} in {home / name}", soft_wrap=True)
    return 0


def _empty(folder: Path) -> int:
    """Delete what is in a folder; the number of files that were there."""
    count = len(_files(folder))
    try:
        if folder.is_dir() and folder.stat().st_mode & OTHERS_WRITE:
            folder.chmod(0o700)  # so that nobody else puts something there, now or later
        for path in _children(folder):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise TilewrightError(f"cannot clear {folder}: {reason(error)}") from error
    return count


def _children(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _files(place: Path) -> dict[Path, int]:
    """The files in a folder or below, with their sizes; a link is as large as itself."""
    found = [place] if place.is_file() else []
    for folder, _, names in os.walk(place):
        found += [Path(folder, name) for name in names]
    sizes = {}
    for path in found:
        with suppress(FileNotFoundError):  # another process dropped it
            sizes[path] = path.lstat().st_size
    return sizes
