"""List the devices here with their limits; for what is not here, why and how to get it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tilewright.files import atomic_write, check_writable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", metavar="FILE|-",
        help="write everything as JSON (-: to stdout, instead of the table)",
    )  # fmt: skip


def main(arguments: argparse.Namespace) -> int:
    from tilewright import environment
    from tilewright.results.document import plain
    from tilewright.runtime.inventory import inventory
    from tilewright.views import console
    from tilewright.views import devices as view

    to_stdout = arguments.json == "-"
    if arguments.json is not None and not to_stdout:
        check_writable(Path(arguments.json))
    found = inventory()
    document = {
        "schema": "tilewright.devices/1",
        "devices": view.to_json(found),
        "environment": plain(environment.fingerprint()),
    }
    text = json.dumps(document, indent=2, allow_nan=False) + "\n"
    if to_stdout:
        sys.stdout.write(text)
        return 0
    screen = console.output()
    for part in view.report(found):
        screen.print(part)
    if arguments.json is not None:
        with atomic_write(Path(arguments.json)) as file:
            file.write(text.encode())
    return 0
