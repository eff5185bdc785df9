"""Show a network's layers: shapes, parameters, MFLOP, bytes and FLOP per byte."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "net", metavar="NET", help="cifar10, ece408, ece408-2017, a .json or a .safetensors file"
    )


def main(arguments: argparse.Namespace) -> int:
    from tilewright.model.load import load
    from tilewright.views import console
    from tilewright.views.network import layer_table

    screen = console.output()
    for part in layer_table(load(arguments.net)):
        screen.print(part)
    return 0
