"""Verbs that have verbs below them, as `kernel check`: each has a module of its own."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from importlib import import_module


def add_verbs(parser: argparse.ArgumentParser, above: str, verbs: Mapping[str, str]) -> None:
    """`verbs` are names with what they do; the module of one is tilewright.cli.ABOVE_NAME."""
    below = parser.add_subparsers(dest="action", metavar="|".join(verbs), required=True)
    for name, about in verbs.items():
        module = import_module(f"tilewright.cli.{above}_{name}")
        verb = below.add_parser(name, help=about, description=module.__doc__)
        verb.add_argument(
            "--traceback", action="store_true", default=argparse.SUPPRESS,
            help="show where an error came from",
        )  # fmt: skip
        module.add_arguments(verb)


def run(arguments: argparse.Namespace, above: str) -> int:
    return int(import_module(f"tilewright.cli.{above}_{arguments.action}").main(arguments))
