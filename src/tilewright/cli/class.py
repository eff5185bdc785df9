"""A class of students who hand in kernels: what a teacher does beside `tilewright serve`.

All of it but `restore` can be done while the class is served.
"""

from __future__ import annotations

import argparse

from tilewright.cli import below

# Each has a module of its own, tilewright.cli.class_NAME.
VERBS = {
    "new": "write a class to start from",
    "check": "read a class's files, and say all that is wrong with them",
    "codes": "codes for students to log in with",
    "backup": "copy all that was handed in and judged into a file",
    "restore": "go back to such a file, while the class is not served",
    "export": "tables, results for Gradescope, or everything",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    below.add_verbs(parser, "class", VERBS)


def main(arguments: argparse.Namespace) -> int:
    return below.run(arguments, "class")
