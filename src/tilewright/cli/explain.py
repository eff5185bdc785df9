"""Explain what a rung does with a network: tiles, arithmetic, share of the machine's peak."""

from __future__ import annotations

import argparse

from tilewright.cli import options
from tilewright.errors import TilewrightError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rung", metavar="RUNG", help="fused")
    options.add_network(parser)
    parser.add_argument(
        "--batch", metavar="N", type=options.positive, default=640,
        help="images at a time: few go by another schedule than many (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--asm", metavar="LAYER", help="the machine code of that layer's inner loop instead"
    )


def main(arguments: argparse.Namespace) -> int:
    from tilewright.climb import prepare
    from tilewright.fuse.cpu.explain import explain, machine_code
    from tilewright.ladder import choose
    from tilewright.views import console
    from tilewright.views.explain import report

    rung = choose("cpu", arguments.rung)
    if rung.name != "fused":
        raise TilewrightError(
            f"rung {rung.name!r} has nothing to explain yet but its idea: {rung.idea}"
        )
    network = prepare(arguments.net, arguments.weights, None, images=1).network
    if arguments.asm is not None:
        print(machine_code(network, arguments.asm, arguments.batch))
        return 0
    screen = console.output()
    for part in report(network, explain(network, arguments.batch)):
        screen.print(part)
    return 0
