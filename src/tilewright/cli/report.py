"""One page to hand in: the ladder, layers, profiles and proofs of a network, in one HTML file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.cli import keeping, options
from tilewright.errors import TilewrightError
from tilewright.files import atomic_write, check_writable
from tilewright.terminal import printable

if TYPE_CHECKING:
    from tilewright.report import Parts
    from tilewright.results.record import Record

DEFAULT_IMAGES = 100
DEFAULT_NET = "ece408"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--net", action="append", metavar="NAME|PATH",
        help=f"a network, as `tilewright run` takes it; may be given several times (default: "
        f"{DEFAULT_NET})",
    )  # fmt: skip
    parser.add_argument(
        "--weights", type=Path, metavar="PATH", help="of a single --net (default: those shipped)"
    )
    options.add_data(parser)
    parser.add_argument(
        "--images", type=options.positive, default=DEFAULT_IMAGES, metavar="N",
        help="images that are timed (default: %(default)s); answers are asked for all",
    )  # fmt: skip
    options.add_batch(parser)
    options.add_device(parser)
    parser.add_argument(
        "--repeats", type=options.positive, metavar="N",
        help="timed rounds of the ladder (default: until times are certain)",
    )  # fmt: skip
    parser.add_argument(
        "--from", dest="sources", nargs="+", metavar="FILE|ID",
        help="measure nothing: make the page from files that --json wrote, from a report's raw "
        "data, or from records that `tilewright history` lists",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, default=Path("report.html"), metavar="FILE",
        help="the page (default: %(default)s); FILE.words.md beside it holds your own words",
    )  # fmt: skip
    keeping.add_history(parser)


def main(arguments: argparse.Namespace) -> int:
    from tilewright.report import Parts
    from tilewright.views.report import words
    from tilewright.views.report.html import needed, to_html
    from tilewright.views.report.material import Material
    from tilewright.views.report.page import page

    needed()
    out: Path = arguments.out
    check_writable(out)
    beside = out.with_suffix(".words.md")
    written = words.read(beside)
    parts = Parts(out.with_suffix(".parts"), _tell)
    records = _kept(arguments) if arguments.sources else _measured(arguments, parts)
    made = page(Material(tuple(records), written))
    with atomic_write(out) as file:
        file.write(to_html(made).encode())
    if not beside.exists():
        with atomic_write(beside) as file:
            file.write(words.start(made.sections).encode())
    parts.remove()
    for what, why in parts.problems.items():
        _tell(f"left out: {what}: {why}")
    _tell(f"written: {out}; your own words go into {beside}")
    return 0


def _tell(line: str) -> None:
    print(printable(line), file=sys.stderr, flush=True)


def _measured(arguments: argparse.Namespace, parts: Parts) -> list[Record]:
    from tilewright.report import Wish, collect
    from tilewright.views import console

    nets = arguments.net or [DEFAULT_NET]
    for option in ("weights", "data"):
        if len(nets) > 1 and getattr(arguments, option) is not None:
            raise TilewrightError(f"--{option} is of one network, and {len(nets)} are named")
    wishes = [
        Wish(net, arguments.weights, arguments.data, arguments.images, arguments.batch,
             arguments.device, arguments.repeats)
        for net in nets
    ]  # fmt: skip
    with console.progress_line() as progress:
        return collect(wishes, parts, progress)


def _kept(arguments: argparse.Namespace) -> list[Record]:
    from tilewright.results import page
    from tilewright.results.history import History

    records: list[Record] = []
    for source in arguments.sources:
        if source.isdecimal() and not Path(source).exists():
            records.append(History(keeping.place(arguments)).read(int(source)))
        else:
            records += page.read(Path(source))
    return records
