"""Run a network over images on one rung; show phases, layers, correctness and speed."""

from __future__ import annotations

import argparse
from pathlib import Path

from tilewright.cli import keeping, options, output
from tilewright.errors import TilewrightError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser)
    options.add_plan(parser)
    parser.add_argument(
        "--save-plan", type=Path, metavar="FILE",
        help="write what was chosen for every layer, to be used again with --plan",
    )  # fmt: skip
    parser.add_argument(
        "--json",
        metavar="FILE|-",
        help="write everything as JSON (-: to stdout, instead of tables)",
    )
    parser.add_argument(
        "--predictions", type=Path, metavar="FILE",
        help="write index, label, predicted and probability (or output, without a softmax) of "
        "every image: .parquet, .npz, and CSV for any other name",
    )  # fmt: skip
    parser.add_argument(
        "--repeats", type=options.positive, default=1, metavar="N",
        help="forward passes; the tables are of the last (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--show", type=options.positive, metavar="N",
        help="so many images with what was predicted, wrong ones first",
    )  # fmt: skip
    options.add_cluster(parser)
    options.add_format(parser)
    keeping.add_save(parser)


def main(arguments: argparse.Namespace) -> int:
    from tilewright.results.predictions import check_kind
    from tilewright.verbs.run import run

    if arguments.plan is not None and arguments.save_plan is not None:
        raise TilewrightError("--save-plan is not for --plan: the plan says all of it")
    if arguments.show is not None and arguments.format != "text":
        raise TilewrightError(f"--show draws pictures, which --format {arguments.format} has not")
    if arguments.show is not None and arguments.on is not None:
        raise TilewrightError("--show is not for --on ray: images stay with the workers")
    outputs = ("json", "predictions", "save_plan")
    options.check_outputs(arguments, outputs, may_be_stdout=("json",))
    if arguments.predictions is not None:
        check_kind(arguments.predictions)
    result = run(**options.given(arguments, run), progress=True)
    text = result.to_json()
    output.write((arguments.json, text))
    if arguments.predictions is not None:
        result.predictions.write(arguments.predictions)
    if arguments.save_plan is not None:
        result.save_plan(arguments.save_plan)
    with keeping.keeping(result.record, arguments):
        output.show(arguments.json, text, result.report(), arguments.format)
        if arguments.show is not None and arguments.json != output.TO_STDOUT:
            output.tables(result.pictures(arguments.show), arguments.format)
    return 0
