"""Copy all that was handed in and judged into one file, while the class is served.

To go back to it: stop the server, put the file in place of state/class.sqlite, start the server.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the class")
    parser.add_argument("file", type=Path, metavar="FILE", help="where to")


def main(arguments: argparse.Namespace) -> int:
    from tilewright.classroom.course import read_course
    from tilewright.classroom.store import store_of
    from tilewright.terminal import printable

    store = store_of(read_course(arguments.folder))
    store.backup(arguments.file)
    size = arguments.file.stat().st_size
    print(f"wrote {printable(str(arguments.file))}: {size:,} bytes")
    return 0
