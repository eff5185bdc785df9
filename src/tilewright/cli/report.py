"""One page to hand in: the ladder, layers, profiles and proofs of a network, in one file."""

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
    from tilewright.reporting.parts import Parts
    from tilewright.results.record import Record
    from tilewright.views.report.blocks import Page

DEFAULT_IMAGES, ON_OPENCL = 100, 20  # where that is PoCL, a hundred take half an hour
DEFAULT_NET = "ece408"
DEFAULT_OUT = Path("report.html")
HTML, PDF, MARKDOWN = (".html", ".htm"), (".pdf",), (".md",)


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
        "--images", type=options.positive, metavar="N",
        help=f"images that are timed (default: {DEFAULT_IMAGES}, on OpenCL {ON_OPENCL}); answers "
        "are asked for all",
    )  # fmt: skip
    options.add_batch(parser)
    options.add_device(parser)
    parser.add_argument(
        "--repeats", type=options.positive, metavar="N",
        help="timed rounds of the ladder (default: until times are certain)",
    )  # fmt: skip
    parser.add_argument(
        "--full-proof", action="store_true",
        help="prove rungs as `tilewright ladder` does, not as its --quick: minutes for each "
        "through PoCL",
    )  # fmt: skip
    parser.add_argument(
        "--counters", action="store_true",
        help="also the GPU's own counters of every rung, what its warps wait for among them, as "
        "`tilewright profile --counters` reads them",
    )  # fmt: skip
    parser.add_argument(
        "--from", dest="sources", nargs="+", metavar="FILE|ID",
        help="measure nothing: make the page from files that --json wrote, from a report's raw "
        "data, or from records that `tilewright history` lists",
    )  # fmt: skip
    parser.add_argument(
        "--milestone", action="store_true",
        help="the course's deliverables as numbered sections, in its order, at 100, 1,000 and "
        "10,000 images",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, action="append", metavar="FILE",
        help="the page, as its name ends: .html, .md, or .pdf, which Chromium prints; may be given "
        f"several times (default: {DEFAULT_OUT}). FILE.words.md beside the first holds your own "
        "words",
    )  # fmt: skip
    parser.add_argument(
        "--bundle", type=Path, metavar="FILE.zip",
        help="also a zip to hand in: page, raw data, tables, kernels, plans, your own words",
    )  # fmt: skip
    keeping.add_history(parser)


def main(arguments: argparse.Namespace) -> int:
    from tilewright.reporting.parts import Parts
    from tilewright.views.report import words
    from tilewright.views.report.bundle import bundle
    from tilewright.views.report.html import needed
    from tilewright.views.report.material import Material
    from tilewright.views.report.page import page

    needed()
    outputs: list[Path] = arguments.out or [DEFAULT_OUT]
    _check(outputs, arguments.bundle)
    beside = outputs[0].with_suffix(".words.md")
    written = words.read(beside)
    parts = Parts(outputs[0].with_suffix(".parts"), _tell)
    try:
        records = _kept(arguments) if arguments.sources else _measured(arguments, parts)
    except KeyboardInterrupt:
        if parts.folder.exists():
            _tell(f"what was measured is in {parts.folder}: the same command goes on from there")
        raise
    material = Material(tuple(records), written)
    made = page(material, arguments.milestone)
    for path in outputs:
        content = _content(made, path)
        with atomic_write(path) as file:
            file.write(content)
    if not beside.exists():
        with atomic_write(beside) as file:
            file.write(words.start(made.sections).encode())
    if arguments.bundle is not None:
        packed = bundle(made, material, beside.read_text(encoding="utf-8"))
        with atomic_write(arguments.bundle) as file:
            file.write(packed)
        outputs = [*outputs, arguments.bundle]
    parts.remove()
    for place in sorted({place for place, text in written.items() if text}):
        if place not in words.places(made.sections):
            _tell(f"left out: what {beside} has under “# {place}”: this page has no such place")
    for what, why in parts.problems.items():
        _tell(f"left out: {what}: {why}")
    _tell(f"written: {', '.join(map(str, outputs))}; your own words go into {beside}")
    return 0


def _check(outputs: list[Path], bundle: Path | None) -> None:
    """Whatever cannot be written is refused before minutes of measuring."""
    from tilewright.reporting.pdf import browser

    for path in outputs:
        if path.suffix not in (*HTML, *PDF, *MARKDOWN):
            raise TilewrightError(f"--out {path}: a page is .html, .md or .pdf")
        check_writable(path)
    if bundle is not None:
        if bundle.suffix != ".zip":
            raise TilewrightError(f"--bundle {bundle}: a bundle is a .zip")
        check_writable(bundle)
    if any(path.suffix in PDF for path in outputs):
        browser()


def _content(made: Page, path: Path) -> bytes:
    from tilewright.reporting.pdf import to_pdf
    from tilewright.views.report.html import to_html
    from tilewright.views.report.markdown import to_markdown

    if path.suffix in MARKDOWN:
        return to_markdown(made).encode()
    return to_pdf(to_html(made)) if path.suffix in PDF else to_html(made).encode()


def _tell(line: str) -> None:
    print(printable(line), file=sys.stderr, flush=True)


def _measured(arguments: argparse.Namespace, parts: Parts) -> list[Record]:
    from tilewright.reporting.collect import collect
    from tilewright.reporting.wish import Wish
    from tilewright.views import console

    nets = arguments.net or [DEFAULT_NET]
    for option in ("weights", "data"):
        if len(nets) > 1 and getattr(arguments, option) is not None:
            raise TilewrightError(f"--{option} is of one network, and {len(nets)} are named")
    usual = ON_OPENCL if arguments.device.kind == "opencl" else DEFAULT_IMAGES
    wishes = [
        Wish(net, arguments.weights, arguments.data, arguments.images or usual, arguments.batch,
             arguments.device, arguments.repeats, arguments.milestone, arguments.full_proof,
             arguments.counters)
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
    if not records:
        raise TilewrightError(f"there is no record in {', '.join(arguments.sources)}")
    # As they were measured: a shell sorts the parts of a report by name.
    return sorted(records, key=lambda record: record.environment.date)
