"""Go back to a backup of a class: what was handed in since then is gone.

What was there is kept in state/before-restore.sqlite, and can be restored in turn.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the class")
    parser.add_argument("file", type=Path, metavar="FILE", help="what `class backup` wrote")


def main(arguments: argparse.Namespace) -> int:
    from tilewright.classroom.locks import alone
    from tilewright.classroom.store import Store
    from tilewright.files import check_file
    from tilewright.terminal import printable

    check_file(arguments.file)
    state = arguments.folder / "state"
    with alone(arguments.folder):
        store = Store(state / "class.sqlite")
        before = state / "before-restore.sqlite"
        undone = before.exists() and before.samefile(arguments.file)
        if not undone:
            store.backup(before)
        store.restore(arguments.file)
    print(f"{printable(str(arguments.folder))} is as in {printable(str(arguments.file))} again")
    if not undone:
        print(f"what was there is in {printable(str(before))}")
    return 0
