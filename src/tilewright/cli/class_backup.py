"""Copy all that was handed in and judged into one file, while the class is served.

`tilewright class restore` goes back to it.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the class")
    parser.add_argument("file", type=Path, metavar="FILE", help="where to")


def main(arguments: argparse.Namespace) -> int:
    from tilewright.classroom.store import Store
    from tilewright.errors import TilewrightError
    from tilewright.terminal import printable

    kept = arguments.folder / "state" / "class.sqlite"
    if not kept.exists():  # whatever the class's files say at the moment
        raise TilewrightError(f"{arguments.folder} has nothing to back up yet: there is no {kept}")
    Store(kept).backup(arguments.file)
    size = arguments.file.stat().st_size
    print(f"wrote {printable(str(arguments.file))}: {size:,} bytes")
    return 0
