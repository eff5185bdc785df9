"""A kernel of your own, in a file with a header that says how it is launched."""

from __future__ import annotations

import argparse
from importlib import import_module

# Each has a module of its own, tilewright.cli.kernel_NAME.
VERBS = {
    "new": "write a working start",
    "check": "compile and prove kernel files, and say what is wrong with those that are",
    "bench": "prove, time and rank kernels among rungs",
    "grade": "judge a class: every kernel in a folder, with points",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="action", metavar="|".join(VERBS), required=True)
    for name, about in VERBS.items():
        module = import_module(f"tilewright.cli.kernel_{name}")
        verb = verbs.add_parser(name, help=about, description=module.__doc__)
        verb.add_argument(
            "--traceback", action="store_true", default=argparse.SUPPRESS,
            help="show where an error came from",
        )  # fmt: skip
        module.add_arguments(verb)


def main(arguments: argparse.Namespace) -> int:
    return int(import_module(f"tilewright.cli.kernel_{arguments.action}").main(arguments))
