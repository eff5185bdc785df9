"""Run a network over images on one rung; show phases, layers, correctness and speed."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tilewright.cli import options
from tilewright.errors import TilewrightError
from tilewright.files import atomic_write, check_writable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_network(parser)
    options.add_data(parser)
    parser.add_argument(
        "--images", type=options.positive, metavar="N", help="the first N images (default: all)"
    )
    options.add_batch(parser)
    options.add_device(parser)
    options.add_memory(parser)
    options.add_precision(parser)
    parser.add_argument(
        "--rung",
        metavar="NAME",
        help="how to compute (default: our fastest on the device)",
    )
    parser.add_argument(
        "--json",
        metavar="FILE|-",
        help="write everything as JSON (-: to stdout, instead of tables)",
    )
    parser.add_argument(
        "--predictions", type=Path, metavar="FILE",
        help="write a CSV of index, label, predicted, probability",
    )  # fmt: skip


def main(arguments: argparse.Namespace) -> int:
    from tilewright.job import Request, run
    from tilewright.views import console
    from tilewright.views import run as view

    to_stdout = arguments.json == "-"
    json_file = None if to_stdout or arguments.json is None else Path(arguments.json)
    _check_outputs(arguments, json_file)
    request = Request(
        net=arguments.net,
        weights=arguments.weights,
        data=arguments.data,
        images=arguments.images,
        batch=arguments.batch,
        device=arguments.device,
        rung=arguments.rung,
        memory=arguments.memory,
        precision=arguments.precision,
    )
    with console.progress_bar() as bar:
        task = bar.add_task(f"{arguments.net}, images", total=None)
        result = run(request, lambda done, of: bar.update(task, completed=done, total=of))
    document = json.dumps(view.to_json(result), indent=2, allow_nan=False) + "\n"
    if to_stdout:
        sys.stdout.write(document)
    else:
        screen = console.output()
        for part in view.report(result):
            screen.print(part)
    if json_file is not None:
        with atomic_write(json_file) as file:
            file.write(document.encode())
    if arguments.predictions is not None:
        with atomic_write(arguments.predictions) as file:
            file.write(view.predictions_csv(result).encode())
    return 0


def _check_outputs(arguments: argparse.Namespace, json_file: Path | None) -> None:
    """Each output can be written, and is neither another output nor an input."""
    if str(arguments.predictions) == "-":
        raise TilewrightError("--predictions - is not possible: name a file")
    taken = {
        Path(path).resolve(): option
        for option in ("net", "weights", "data")
        if (path := getattr(arguments, option))
    }
    for option, path in (("json", json_file), ("predictions", arguments.predictions)):
        if path is None:
            continue
        check_writable(path)
        if path.is_file() or not path.exists():
            other = taken.setdefault(path.resolve(), option)
            if other != option:
                raise TilewrightError(f"--{option} {path} is the file of --{other}")
