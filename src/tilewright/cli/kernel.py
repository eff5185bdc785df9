"""A kernel of your own, in a file with a header that says how it is launched."""

from __future__ import annotations

import argparse

from tilewright.cli import below

# Each has a module of its own, tilewright.cli.kernel_NAME.
VERBS = {
    "new": "write a working start",
    "check": "compile and prove kernel files, and say what is wrong with those that are",
    "bench": "prove, time and rank kernels among rungs",
    "grade": "judge a class: every kernel in a folder, with points",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    below.add_verbs(parser, "kernel", VERBS)


def main(arguments: argparse.Namespace) -> int:
    return below.run(arguments, "kernel")
