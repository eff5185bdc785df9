"""The command line: one verb, one file. Errors are shown here, once, in one line."""

from __future__ import annotations

import argparse
import difflib
import io
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from signal import SIGINT
from typing import NoReturn

from tilewright import __version__
from tilewright.cli.signals import stopped_by_signals
from tilewright.command import commanded
from tilewright.errors import SeveralLines, TilewrightError, unknown
from tilewright.terminal import printable

LONGEST_ERROR = 500
VERBS = {
    "run": "run a network over images and show where the time went",
    "profile": "kernels, copies, API calls and layers of a run, as nvprof showed them",
    "ladder": "verify and time every rung, side by side",
    "report": "one page to hand in: charts, tables and proofs in one HTML file",
    "tune": "find the fastest proven way to compute each layer; the result is a plan",
    "kernel": "a kernel of your own: write a start, check it, compare it",
    "serve": "a class: students hand in kernels, workers judge them, pages show who stands where",
    "login": "log in to a class, and keep a token",
    "submit": "hand in a kernel to a class, and watch what becomes of it",
    "break": "plant mistakes into a rung and see the proof find them",
    "history": "what was measured before: list, show, compare, export",
    "class": "a class of students: write one, check it, codes, backup, export",
    "show": "a network's layers: shapes, parameters, FLOP, bytes",
    "convert": "a network into another format: ONNX, safetensors and JSON, ConvNetJS text",
    "data": "list, fetch and check data sets",
    "train": "train a network's weights (needs PyTorch)",
    "explain": "what a rung does with a network: tiles, arithmetic, share of peak",
    "devices": "what can be computed on here, and how to get what cannot",
    "completion": "a script that completes all of this in bash, zsh or fish",
    "cache": "show or clear what is kept on disk: compiled kernels, fetched data",
}


class Parser(argparse.ArgumentParser):
    """argparse, but an error is one line."""

    def error(self, message: str) -> NoReturn:
        raise TilewrightError(f"{message}{self._hint(message)} (see `{self.prog} --help`)")

    def _hint(self, message: str) -> str:
        """What may have been meant by words that nobody takes."""
        _, found, words = message.partition("unrecognized arguments: ")
        if not found:
            return ""
        if not words.startswith("-"):
            return ": a value follows its option, as in --net ece408, and lists are a,b,c"
        option = words.split()[0].partition("=")[0].lstrip("-")
        known = {each.lstrip("-"): each for each in self._option_string_actions}
        near = difflib.get_close_matches(option, known, n=1)
        return f"; did you mean {known[near[0]]}?" if near else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0, 2 for an error, 130 for Ctrl-C or 128 + another signal."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _prepare_streams()
    # What libraries have to say to programmers is not for users; errors are shown below.
    warnings.simplefilter("ignore")
    with stopped_by_signals() as stop, commanded(given):
        try:
            code = _dispatch(given)
            _flush()
            return code
        except KeyboardInterrupt:
            _complain("interrupted" if stop.signal is None else f"stopped by {stop.signal.name}")
            return 128 + (stop.signal or SIGINT)
        except BrokenPipeError:  # from a plain print: whoever read our output has left
            _silence()
            return 0
        except Exception as error:
            if "--traceback" in given:
                raise
            _complain(error.report if isinstance(error, SeveralLines) else _one_line(error))
            return 2


def _flush() -> None:
    """Standard output to its end; nobody need read it."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _silence()


def _silence() -> None:
    from tilewright.views.console import silence

    silence()


def _complain(line: str) -> None:
    with suppress(OSError):  # nobody reads errors either
        print(f"tilewright: {printable(line)}", file=sys.stderr, flush=True)


def _one_line(error: Exception) -> str:
    if isinstance(error, TilewrightError):
        text = str(error)
    elif isinstance(error, MemoryError):
        text = "out of memory: use a smaller --batch, fewer --images or a smaller network"
    elif isinstance(error, OSError):
        text = f"{error.strerror or error}: {error.filename or 'input or output'}"
    else:
        text = f"internal error, {type(error).__name__}: {error} (--traceback shows where)"
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_ERROR else f"{line[:LONGEST_ERROR]}..."


def _prepare_streams() -> None:
    """Characters a terminal cannot show are escaped, and a closed stream is nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123 - open to the end
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _dispatch(given: list[str]) -> int:
    parser = Parser(
        prog="tilewright",
        description="Small convolutional networks, from a for-loop to one fused kernel.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="verbs:\n" + "".join(f"  {verb:10} {about}\n" for verb, about in VERBS.items())
        + "\n`tilewright VERB --help` explains a verb.",
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"tilewright {__version__}")
    parser.add_argument("verb", nargs="?", metavar="VERB", help="what to do")
    first = next((i for i, word in enumerate(given) if not word.startswith("-")), len(given))
    if given and given[0].startswith("--") and given[0] not in parser._option_string_actions:
        raise TilewrightError(
            f"{given[0]} stands before the verb: options follow it, as in `tilewright run --help`"
        )
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
