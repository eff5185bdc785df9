"""Options of verbs whose results are kept, and the keeping."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.errors import TilewrightError
from tilewright.files import history_file
from tilewright.terminal import printable

if TYPE_CHECKING:
    from tilewright.results.record import Record

WHERE = "the file that results are kept in (default: history.sqlite in the user's data folder)"


def add_history(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--history", type=Path, metavar="FILE", help=WHERE)


def add_no_save(parser: argparse.ArgumentParser) -> None:
    """For verbs that keep their results unless told otherwise."""
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--no-save", dest="save", action="store_false", help="do not keep the result"
    )
    add_history(either)


def add_save(parser: argparse.ArgumentParser) -> None:
    """For verbs that keep their results when asked to."""
    parser.add_argument(
        "--save", action="store_true",
        help="keep the result: `tilewright history` lists and compares what was kept",
    )  # fmt: skip
    add_history(parser)


def place(arguments: argparse.Namespace) -> Path:
    return arguments.history or history_file()


@contextmanager
def keeping(record: Record, arguments: argparse.Namespace) -> Iterator[None]:
    """Keep a result, if it is to be, before it is printed inside of this.

    What is wrong with the file is raised afterwards: the result is printed in any case.
    """
    if not arguments.save and arguments.history is None:
        yield
        return
    from tilewright.results.history import History

    path, number, problem = place(arguments), 0, None
    try:
        number = History(path).add(record)
    except TilewrightError as error:
        problem = error
    yield
    if problem is not None:
        raise TilewrightError(f"the result was not kept: {problem}") from problem
    print(f"kept as {number} in {printable(str(path))}: see `tilewright history`", file=sys.stderr)
