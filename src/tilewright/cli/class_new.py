"""Write a class to start from: its description, a roster and one task, all of it working."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a folder that is not there")


def main(arguments: argparse.Namespace) -> int:
    from tilewright.classroom.sample import write
    from tilewright.terminal import printable

    folder = arguments.folder
    for name in write(folder):
        print(f"wrote {printable(str(folder / name))}")
    print(f"next: write your students into roster.csv, then tilewright class codes {folder}")
    print(f"and: tilewright serve --class {folder}")
    return 0
