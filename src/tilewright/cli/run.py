"""Run a network over images on one rung; show phases, layers, correctness and speed."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path

from tilewright.cli import keeping, options, output
from tilewright.errors import TilewrightError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser)
    parser.set_defaults(batch=None, device=None)  # which of them are given matters beside --plan
    parser.add_argument(
        "--plan", type=Path, metavar="FILE",
        help="a plan that --save-plan wrote: device, rung, memory, batch and precision are its own",
    )  # fmt: skip
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
        help="write a CSV of index, label, predicted, probability",
    )  # fmt: skip
    parser.add_argument(
        "--repeats", type=options.positive, default=1, metavar="N",
        help="forward passes; the tables are of the last (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--show", type=options.positive, metavar="N",
        help="so many images with what was predicted, wrong ones first",
    )  # fmt: skip
    options.add_format(parser)
    keeping.add_save(parser)


def main(arguments: argparse.Namespace) -> int:
    from tilewright.job import run
    from tilewright.plan_file import write
    from tilewright.profiling.near import beside_peak
    from tilewright.results import document
    from tilewright.results.run import record
    from tilewright.views import console
    from tilewright.views import run as view

    if arguments.plan is not None:
        for name in ("device", "rung", "memory", "batch", "precision", "save_plan"):
            if getattr(arguments, name) is not None:
                option = name.replace("_", "-")
                raise TilewrightError(f"--{option} is not for --plan: the plan says all of it")
    outputs = ("json", "predictions", "save_plan")
    options.check_outputs(arguments, outputs, may_be_stdout=("json",))
    with console.progress_line() as tell:
        images, built = (
            partial(tell, f"{arguments.net}, {what}") for what in ("images", "kernels built")
        )
        request = replace(
            options.request(arguments), plan=arguments.plan, repeats=arguments.repeats
        )
        result = run(request, images, built, lambda doing: tell(doing, 0, 1))
        tell("measuring this device's limits", 0, 1)
        made = beside_peak(record(result))
    text = document.text(made)
    output.write((arguments.json, text))
    if arguments.predictions is not None:
        output.write((arguments.predictions, view.predictions_csv(result)))
    if arguments.save_plan is not None:
        write(arguments.save_plan, result.plan, result.network)
    with keeping.keeping(made, arguments):
        output.show(arguments.json, text, view.report(made), arguments.format)
        if arguments.show is not None and arguments.json != output.TO_STDOUT:
            output.tables(view.pictures(result, arguments.show), arguments.format)
    return 0
