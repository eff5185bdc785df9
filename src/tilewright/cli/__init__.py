"""The command line: one verb, one file. Errors are shown here, once, in one line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from tilewright import __version__
from tilewright.errors import TilewrightError, unknown

VERBS = {
    "run": "run a network over images and show where the time went",
    "ladder": "verify and time every rung, side by side",
    "show": "a network's layers: shapes, parameters, FLOP, bytes",
    "data": "list, fetch and check data sets",
    "train": "train a network's weights (needs PyTorch)",
}


class Parser(argparse.ArgumentParser):
    """argparse, but an error is one line."""

    def error(self, message: str) -> NoReturn:
        raise TilewrightError(f"{message} (see `{self.prog} --help`)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0, 2 for an error, or 130 for Ctrl-C."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    show_traceback = "--traceback" in given
    try:
        code = _dispatch(given)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("tilewright: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read our output has left; give Python somewhere to flush to at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except TilewrightError as error:
        if show_traceback:
            raise
        print(f"tilewright: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except MemoryError:
        print("tilewright: out of memory: use a smaller --batch or fewer --images", file=sys.stderr)
        return 2
    except Exception as error:
        if show_traceback:
            raise
        text = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"tilewright: internal error, {text} (--traceback shows where)", file=sys.stderr)
        return 2


def _dispatch(given: list[str]) -> int:
    parser = Parser(
        prog="tilewright",
        description="Small convolutional networks, from a for-loop to one fused kernel.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="verbs:\n" + "".join(f"  {verb:8} {about}\n" for verb, about in VERBS.items())
        + "\n`tilewright VERB --help` explains a verb.",
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"tilewright {__version__}")
    parser.add_argument("verb", nargs="?", metavar="VERB", help="what to do")
    first = next((i for i, word in enumerate(given) if not word.startswith("-")), len(given))
    options = parser.parse_args(given[: first + 1])
    if options.verb is None:
        parser.print_help()
        return 0
    if options.verb not in VERBS:
        raise unknown("verb", options.verb, VERBS)
    verb = import_module(f"tilewright.cli.{options.verb}")
    verb_parser = Parser(prog=f"tilewright {options.verb}", description=verb.__doc__)
    verb_parser.add_argument(
        "--traceback", action="store_true", help="show where an error came from"
    )
    verb.add_arguments(verb_parser)
    return int(verb.main(verb_parser.parse_args(given[first + 1 :])))
