"""List the devices here with their limits; for what is not here, why and how to get it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tilewright.cli import options, output
from tilewright.files import check_writable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", metavar="FILE|-",
        help="write everything as JSON (-: to stdout, instead of the table)",
    )  # fmt: skip
    options.add_format(parser)


def main(arguments: argparse.Namespace) -> int:
    from tilewright import environment
    from tilewright.results.document import plain
    from tilewright.runtime.inventory import inventory
    from tilewright.views import devices as view

    if arguments.json is not None and arguments.json != output.TO_STDOUT:
        check_writable(Path(arguments.json))
    found = inventory()
    document = {
        "schema": "tilewright.devices/1",
        "devices": view.to_json(found),
        "environment": plain(environment.fingerprint()),
    }
    text = json.dumps(document, indent=2, allow_nan=False) + "\n"
    output.write((arguments.json, text))
    output.show(arguments.json, text, view.report(found), arguments.format)
    return 0
