"""Verify every rung, then time all of them in turns: warm-up, rounds, medians, intervals."""

from __future__ import annotations

import argparse

from tilewright.cli import keeping, options, output

DEFAULT_IMAGES, QUICK_IMAGES = 100, 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_network(parser)
    options.add_data(parser)
    parser.add_argument(
        "--images", type=options.positive, metavar="N",
        help=f"images in each repeat (default: {DEFAULT_IMAGES}, or {QUICK_IMAGES} with --quick)",
    )  # fmt: skip
    options.add_batch(parser)
    options.add_device(parser)
    options.add_memory(parser, every=True)
    parser.add_argument(
        "--rungs", type=_names, default=(), metavar="A,B,C",
        help="only these rungs; on a GPU also rungs of the CPU, timed beside it (default: all of "
        "the device)",
    )  # fmt: skip
    parser.add_argument(
        "--against", metavar="RUNG",
        help="compare every rung with this one (default: with the one that it changes)",
    )  # fmt: skip
    parser.add_argument(
        "--quick", action="store_true",
        help="a first look in seconds: a short proof, few images, few rounds",
    )  # fmt: skip
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
    options.add_format(parser)
    keeping.add_no_save(parser)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def main(arguments: argparse.Namespace) -> int:
    from tilewright import environment
    from tilewright.climb import climb, prepare
    from tilewright.measure.samples import Rounds
    from tilewright.results import document
    from tilewright.results.climbed import record
    from tilewright.views import ladder as view
    from tilewright.views import live

    options.check_outputs(arguments, ("json",), may_be_stdout=("json",))
    images = arguments.images or (QUICK_IMAGES if arguments.quick else DEFAULT_IMAGES)
    rounds = arguments.repeats or (Rounds(3, 9, 3.0) if arguments.quick else Rounds())
    subject = prepare(arguments.net, arguments.weights, arguments.data, images)
    own = options.own_rungs(arguments.device, arguments.rung)
    with live.watching() as show:
        ladder = climb(
            subject.network, subject.dataset.images, arguments.device, arguments.batch,
            rounds, arguments.memory, own=own, progress=show.progress,
            names=arguments.rungs, against=arguments.against, short=arguments.quick, audience=show,
        )  # fmt: skip
    made = record(
        ladder, subject, arguments.device, arguments.batch, arguments.memory,
        environment.fingerprint(),
    )  # fmt: skip
    text = document.text(made)
    output.write((arguments.json, text))
    with keeping.keeping(made, arguments):
        output.show(arguments.json, text, view.report(made), arguments.format)
    return 0 if all(row.verdict is None or row.verdict.passed for row in ladder.rows) else 1
