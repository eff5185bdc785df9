"""Run a network over images on one rung; show phases, layers, correctness and speed."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from tilewright.cli import keeping, options
from tilewright.files import atomic_write


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser)
    parser.add_argument(
        "--json",
        metavar="FILE|-",
        help="write everything as JSON (-: to stdout, instead of tables)",
    )
    parser.add_argument(
        "--predictions", type=Path, metavar="FILE",
        help="write a CSV of index, label, predicted, probability",
    )  # fmt: skip
    keeping.add_save(parser)


def main(arguments: argparse.Namespace) -> int:
    from tilewright.job import run
    from tilewright.results import document
    from tilewright.results.run import record
    from tilewright.views import console
    from tilewright.views import run as view

    options.check_outputs(arguments, ("json", "predictions"), may_be_stdout=("json",))
    to_stdout = arguments.json == "-"
    json_file = None if to_stdout or arguments.json is None else Path(arguments.json)
    with console.progress_line() as tell:
        told = (partial(tell, f"{arguments.net}, {what}") for what in ("images", "kernels built"))
        result = run(options.request(arguments), *told)
    made = record(result)
    text = document.text(made)
    # Files first: whoever reads what is printed may leave in the middle.
    if json_file is not None:
        with atomic_write(json_file) as file:
            file.write(text.encode())
    if arguments.predictions is not None:
        with atomic_write(arguments.predictions) as file:
            file.write(view.predictions_csv(result).encode())
    with keeping.keeping(made, arguments):
        if to_stdout:
            console.write(text)
        else:
            screen = console.output()
            for part in view.report(made):
                screen.print(part)
    return 0
