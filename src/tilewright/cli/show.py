"""Show a network's layers (shapes, parameters, MFLOP, bytes, FLOP per byte) and a rung's plan."""

from __future__ import annotations

import argparse

from tilewright.cli import options, output
from tilewright.errors import TilewrightError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "net",
        metavar="NET",
        help="cifar10, ece408, ece408-2017, an .onnx, .pt2, .json or .safetensors file",
    )
    parser.add_argument(
        "--rung", metavar="NAME|FILE",
        help="what this rung, or kernel file, chooses for each layer on the device, too",
    )  # fmt: skip
    options.add_device(parser)
    options.add_precision(parser)
    options.add_format(parser)


def main(arguments: argparse.Namespace) -> int:
    from tilewright.model.load import load
    from tilewright.plan import uniform
    from tilewright.rungs import DEFAULT_BATCH, choose
    from tilewright.views.network import layer_table
    from tilewright.views.plan import steps

    network, plan = load(arguments.net), None
    if arguments.rung is not None:
        rung = choose(arguments.device, arguments.rung, arguments.precision)
        plan = uniform(network, rung, arguments.device, DEFAULT_BATCH)
    elif arguments.precision is not None or arguments.device.kind != "cpu":
        raise TilewrightError("--device and --precision are of a rung: name it with --rung")
    planned = () if plan is None else ("", steps(plan))
    output.tables((*layer_table(network), *planned), arguments.format)
    return 0
