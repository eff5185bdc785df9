"""Verify every rung, then time all of them in turns: warm-up, rounds, medians, intervals."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tilewright.cli import options
from tilewright.files import atomic_write

DEFAULT_IMAGES = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_network(parser)
    options.add_data(parser)
    parser.add_argument(
        "--images", type=options.positive, default=DEFAULT_IMAGES, metavar="N",
        help="images in each repeat (default: %(default)s)",
    )  # fmt: skip
    options.add_batch(parser)
    options.add_device(parser)
    options.add_memory(parser)
    parser.add_argument(
        "--repeats", type=options.positive, metavar="N",
        help="timed rounds after one of warm-up (default: 9, and more until every network's time "
        "is certain to 2 %%, up to 49 or a minute)",
    )  # fmt: skip
    parser.add_argument(
        "--rung", action="append", default=[], metavar="FILE",
        help="a kernel file of your own to be among the rungs, as in ./mine.cl; may be given "
        "several times",
    )  # fmt: skip
    parser.add_argument(
        "--json", metavar="FILE|-",
        help="write verdicts and raw samples as JSON (-: to stdout, instead of the table)",
    )  # fmt: skip


def main(arguments: argparse.Namespace) -> int:
    from tilewright import environment
    from tilewright.climb import climb, prepare
    from tilewright.measure import Rounds
    from tilewright.views import console, units
    from tilewright.views import ladder as view

    to_stdout = arguments.json == "-"
    options.check_outputs(arguments, ("json",), may_be_stdout=("json",))
    subject = prepare(arguments.net, arguments.weights, arguments.data, arguments.images)
    network, dataset = subject.network, subject.dataset
    own = options.own_rungs(arguments.device, arguments.rung)
    with console.progress_line() as tell:
        ladder = climb(
            network, dataset.images, arguments.device, arguments.batch,
            arguments.repeats or Rounds(), arguments.memory, own=own, progress=tell,
        )  # fmt: skip
    rows = ladder.rows
    document = {
        "schema": "tilewright.ladder/2",
        "network": network.name,
        "weights": subject.weights_note,
        "data": dataset.source,
        "images": len(dataset),
        "batch": arguments.batch,
        "device": str(arguments.device),
        "device_name": ladder.device,
        "repeats": view.rounds(ladder),
        "order_seed": ladder.seed,
        "memory": arguments.memory,
        "peak_flops": ladder.peak,
        "peak_notices": list(ladder.notices),
        "conditions": ladder.conditions.to_json(),
        "rungs": view.to_json(ladder, network, len(dataset)),
        "environment": environment.fingerprint(),
    }
    text = json.dumps(document, indent=2, allow_nan=False) + "\n"
    # The file first: whoever reads what is printed may leave in the middle.
    if arguments.json is not None and not to_stdout:
        with atomic_write(Path(arguments.json)) as file:
            file.write(text.encode())
    if to_stdout:
        console.write(text)
    else:
        screen = console.output()
        screen.print(
            f"{network.name} on {arguments.device} ({ladder.device}): "
            f"{units.count(len(dataset))} images, "
            f"{view.rounds(ladder)} rounds in turns after a warm-up"
        )
        screen.print(f"{dataset.source}; {subject.weights_note}\n")
        for part in view.report(ladder, network, len(dataset), dataset.labels):
            screen.print(part)
    return 0 if all(row.verdict is None or row.verdict.passed for row in rows) else 1
