"""What was measured before: a list, one record, two compared, or all of it for other programs."""

from __future__ import annotations

import argparse
import datetime
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.cli import keeping, options, output
from tilewright.errors import TilewrightError, unknown
from tilewright.files import atomic_write, check_writable
from tilewright.terminal import printable
from tilewright.views.table import FORMATS

if TYPE_CHECKING:
    from tilewright.results.history import Filter, History
    from tilewright.views.table import Format

EXPORTS = ("csv", "json", "parquet")  # formats
# What can be done, with how many records it takes by their numbers.
ACTIONS = {"list": 0, "show": 1, "compare": 2, "export": 0, "remove": None}
FILTERS = ("verb", "net", "device", "since", "rung", "last")
SHOWN = 20  # of a list that is not asked for more


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", default="list", metavar="ACTION",
        help="list (the default), show ID, compare A B, export, remove ID...",
    )  # fmt: skip
    parser.add_argument(
        "ids",
        nargs="*",
        type=options.positive,
        metavar="ID",
        help="records, as the list numbers them",
    )
    parser.add_argument("--verb", help="only what this verb made: run, ladder, bench")
    parser.add_argument("--net", metavar="NAME", help="only of this network")
    parser.add_argument(
        "--device", metavar="NAME", help="only on this device; cuda is any of that kind"
    )
    parser.add_argument("--rung", metavar="NAME", help="only where this rung took part")
    parser.add_argument(
        "--since", type=moment, metavar="DATE",
        help="only from this day or moment on, as in 2026-11-15 or 2026-11-15T12:00 (UTC)",
    )  # fmt: skip
    parser.add_argument(
        "--last", type=options.positive, metavar="N",
        help=f"only the latest N (default: {SHOWN} of a list, all of an export)",
    )  # fmt: skip
    parser.add_argument(
        "--format", choices=(*FORMATS, "parquet"), metavar="FORMAT",
        help=f"of tables: {', '.join(FORMATS)} (default: text); of an export: csv and parquet have "
        "a row for everything that was timed, json has whole records (default: csv)",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="FILE", help="of an export (default: stdout)")
    keeping.add_history(parser)


def moment(text: str) -> datetime.datetime:
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r:.40} is no date such as 2026-11-15") from None


def main(arguments: argparse.Namespace) -> int:
    from tilewright.results.history import History

    action = arguments.action
    if action not in ACTIONS:
        if action.isdecimal():
            raise TilewrightError(f"what to do with {action}: `tilewright history show {action}`?")
        raise unknown("action", action, ACTIONS)
    _check(arguments)
    history = History(keeping.place(arguments))
    if action == "list":
        _list(history, _filter(arguments), arguments.format or FORMATS[0])
    elif action == "export":
        _export(history, arguments)
    elif action == "remove":
        history.remove(arguments.ids)
        print(f"removed {', '.join(map(str, arguments.ids))} from {printable(str(history.path))}")
    else:
        _show(history, arguments.ids, arguments.format or FORMATS[0])
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """An option or a number that an action would not look at is a mistake."""
    action, given, wanted = arguments.action, len(arguments.ids), ACTIONS[arguments.action]
    if given != wanted if wanted is not None else not given:
        words = {0: "no ID", 1: "one ID", 2: "two IDs", None: "one ID or more"}[wanted]
        raise TilewrightError(f"history {action} takes {words}, not {given}")
    allowed = {"list": (*FILTERS, "format"), "export": (*FILTERS, "format", "out"),
               "remove": ()}.get(action, ("format",))  # fmt: skip
    exported = arguments.format in EXPORTS if action == "export" else arguments.format in FORMATS
    if arguments.format is not None and not exported:
        raise TilewrightError(f"history {action} has no --format {arguments.format}")
    for option in (*FILTERS, "format", "out"):
        if getattr(arguments, option) is not None and option not in allowed:
            raise TilewrightError(f"history {action} takes no --{option}")


def _filter(arguments: argparse.Namespace) -> Filter:
    from tilewright.results.catalogue import RECORDS
    from tilewright.results.history import Filter

    if arguments.verb is not None and arguments.verb not in RECORDS:
        raise unknown("verb", arguments.verb, RECORDS)
    return Filter(
        arguments.verb, arguments.net, arguments.device, arguments.since, arguments.rung,
        arguments.last,
    )  # fmt: skip


def _list(history: History, wanted: Filter, shape: Format) -> None:
    from dataclasses import replace

    from tilewright.views import console, units
    from tilewright.views import history as view

    last = wanted.last or SHOWN
    found = history.entries(replace(wanted, last=last + 1))
    screen = console.output()
    if not found:
        screen.print(f"nothing that fits is kept in {history.path}", soft_wrap=True)
        return
    more = []
    if wanted.last is None and len(found) > last:
        total = len(history.entries(wanted))
        more.append(f"\n{units.count(total - last)} older ones: --last {total} shows them")
    output.tables([view.entries(found[-last:]), *more], shape)


def _show(history: History, numbers: list[int], shape: Format) -> None:
    from tilewright.results.changes import compare
    from tilewright.views import history as view

    records = [history.read(number) for number in numbers]
    if len(records) == 1:
        parts = view.report(numbers[0], records[0])
    else:
        parts = view.changes((numbers[0], numbers[1]), compare(records[0], records[1]))
    output.tables(parts, shape)


def _export(history: History, arguments: argparse.Namespace) -> None:
    from tilewright.results.export import export
    from tilewright.views import console, units

    form = arguments.format or "csv"
    if arguments.out is not None:
        check_writable(arguments.out)
    elif form == "parquet":
        raise TilewrightError("Parquet is no text: name a file with --out")
    entries = history.entries(_filter(arguments))
    content = export([(entry.id, history.read(entry.id)) for entry in entries], form)
    if arguments.out is None:
        console.write(content.decode())
        return
    with atomic_write(arguments.out) as file:
        file.write(content)
    count = units.plural(len(entries), "record")
    print(f"{count} in {printable(str(arguments.out))}", file=sys.stderr)
