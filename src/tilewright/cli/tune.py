"""Find the fastest proven way to compute each layer, and write it as a plan."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tilewright.cli import keeping, options, output
from tilewright.files import check_writable
from tilewright.terminal import printable

BUDGET = 60
IMAGES, IMAGES_CUDA = 100, 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "rungs", nargs="*", metavar="RUNG|FILE",
        help="rungs to choose from, and kernel files of your own (default: all rungs of the "
        "device; with nothing but files, these and all rungs)",
    )  # fmt: skip
    options.add_network(parser)
    options.add_device(parser)
    options.add_batch(parser)
    parser.add_argument(
        "--images", type=options.positive, metavar="N",
        help=f"images that whole networks are timed on (default: {IMAGES:,}; {IMAGES_CUDA:,} on "
        "cuda)",
    )  # fmt: skip
    options.add_precision(parser)
    parser.add_argument(
        "--budget", type=options.positive, default=BUDGET, metavar="SECONDS",
        help="for the search; what each rung chooses itself is tried in any case, and proofs and "
        "the last comparison come on top (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, default=Path("plan.json"), metavar="FILE",
        help="the plan, for `run --plan`; what was tried is kept in FILE.trials, and the same "
        "command goes on from there (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--json", metavar="FILE|-", help="write all of it as JSON (-: to stdout, without tables)"
    )
    options.add_cluster(parser)
    options.add_format(parser)
    keeping.add_no_save(parser)


def main(arguments: argparse.Namespace) -> int:
    from tilewright.climb import prepare
    from tilewright.results import document
    from tilewright.tune.whole import Asked, tune
    from tilewright.verbs.arguments import on_cluster
    from tilewright.views import console
    from tilewright.views import tune as view

    options.check_outputs(arguments, ("out", "json"), may_be_stdout=("json",))
    device = arguments.device
    count = arguments.images or (IMAGES_CUDA if device.kind == "cuda" else IMAGES)
    asked = Asked(
        prepare(arguments.net, arguments.weights, None, 1), arguments.net, tuple(arguments.rungs),
        device, arguments.batch, count, arguments.precision, arguments.budget, arguments.out,
    )  # fmt: skip
    check_writable(asked.kept)
    spread = on_cluster(arguments.on, arguments.workers, arguments.address)
    try:
        with console.progress_line() as tell:
            if spread:
                from tilewright.cluster.tune import tune_on

                made = tune_on(asked, arguments.workers, arguments.address, tell, _say)
            else:
                made = tune(asked, tell, _say)
    except KeyboardInterrupt:
        _say(f"what was tried is kept in {asked.kept}: the same command goes on from there")
        raise
    text = document.text(made)
    output.write((arguments.json, text))
    with keeping.keeping(made, arguments):
        output.show(arguments.json, text, view.report(made), arguments.format)
    return 0


def _say(line: str) -> None:
    print(printable(line), file=sys.stderr)
