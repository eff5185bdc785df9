"""Prove kernels, time each of their convolutions among rungs, and rank them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tilewright.cli import keeping, options, output
from tilewright.errors import TilewrightError

if TYPE_CHECKING:
    from tilewright.judge.arena import Entry
    from tilewright.rungs.rung import Rung
    from tilewright.runtime.device import Device

MOST_IMAGES = 10_000
TUNED = "tuned"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="kernels to judge")
    parser.add_argument(
        "--rungs", metavar="NAMES",
        help="rungs to compare with, with commas (default: those that the kernels change, and "
        f"{TUNED})",
    )  # fmt: skip
    options.add_network(parser)
    options.add_data(parser)
    parser.add_argument(
        "--images", type=options.positive, default=MOST_IMAGES, metavar="N",
        help="images whose answers are looked at, at most (default: %(default)s, or all there are)",
    )  # fmt: skip
    options.add_batch(parser)
    options.add_device(parser)
    parser.set_defaults(device="opencl")
    options.add_rounds(parser)
    parser.add_argument(
        "--limit", type=options.positive, default=20, metavar="SECONDS",
        help="a launch that takes longer is stopped (default: %(default)s)",
    )  # fmt: skip
    options.add_trust(parser)
    parser.add_argument(
        "--json", metavar="FILE|-", help="write all of it as JSON (-: to stdout, without tables)"
    )
    options.add_format(parser)
    keeping.add_no_save(parser)


def main(arguments: argparse.Namespace) -> int:
    from dataclasses import replace

    from tilewright import environment
    from tilewright.climb import prepare
    from tilewright.judge.bench import ROUNDS, bench
    from tilewright.results import document
    from tilewright.results.benched import record
    from tilewright.views import bench as view
    from tilewright.views import console

    options.check_outputs(arguments, ("json",), may_be_stdout=("json",))
    judged, unreadable = _load(arguments)
    entries = _entries(arguments, judged)
    subject = prepare(
        arguments.net, arguments.weights, arguments.data, arguments.images, or_all=True
    )
    network, dataset = subject.network, subject.dataset
    if dataset.labels is None:  # nothing to be right about
        dataset = dataset.first(arguments.batch)
    with console.progress_line() as tell:
        found = bench(
            entries, network, dataset, arguments.device, arguments.batch,
            arguments.repeats or ROUNDS, arguments.trust, arguments.limit, progress=tell,
        )  # fmt: skip
    subject = replace(subject, dataset=dataset)
    made = record(found, subject, arguments.device, unreadable, environment.fingerprint())
    text = document.text(made)
    output.write((arguments.json, text))
    with keeping.keeping(made, arguments):
        output.show(arguments.json, text, view.report(made), arguments.format)
    return 1 if unreadable or any(row.refused for row in found.rows if row.entry.judged) else 0


def _load(arguments: argparse.Namespace) -> tuple[list[Rung], dict[str, str]]:
    """The kernels, and why others are none; an error where none is left."""
    from tilewright.rungs import choose

    judged: dict[str, Rung] = {}
    unreadable: dict[str, str] = {}
    for file in arguments.files:
        try:
            rung = choose(arguments.device, file)
            if rung.label in judged:
                raise TilewrightError(f"another file has a kernel of the name {rung.label!r}")
        except TilewrightError as error:
            unreadable[file] = str(error)
        else:
            judged[rung.label] = rung
    if not judged:
        raise TilewrightError(next(iter(unreadable.values())))
    return list(judged.values()), unreadable


def _entries(arguments: argparse.Namespace, judged: list[Rung]) -> list[Entry]:
    """The kernels, whom they are compared with, and the library, each once."""
    from tilewright.judge.arena import Entry
    from tilewright.judge.bench import library
    from tilewright.rungs import choose

    device: Device = arguments.device
    if arguments.rungs is not None:
        names = [name.strip() for name in arguments.rungs.split(",")]
    else:
        names = [*(rung.against for rung in judged if rung.against), TUNED]
    taken = {rung.label: Entry(rung, device, judged=True) for rung in judged}
    for name in names:
        rung = choose(device, name)
        taken.setdefault(rung.label, Entry(rung, device))
    if (yardstick := library(device)) is not None:
        taken.setdefault(yardstick.rung.label, yardstick)
    return list(taken.values())
