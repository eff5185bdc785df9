"""Explain what a rung does with a network: tiles, arithmetic, memory, and what limits it."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from tilewright.cli import options, output
from tilewright.errors import TilewrightError

if TYPE_CHECKING:
    from tilewright.model.network import Network
    from tilewright.rungs.rung import Rung

GPU_OPTIONS = ("layer", "device", "source", "precision")
FUSED_BATCH = 640  # enough for every core


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "rung", metavar="RUNG", help="any rung of the ladder, or a kernel file of your own"
    )
    options.add_network(parser)
    parser.add_argument(
        "--batch", metavar="N", type=options.positive,
        help=f"images at a time (default: {FUSED_BATCH} for fused, which takes few by another "
        "schedule than many; 100 for a GPU rung; tensor and network take any)",
    )  # fmt: skip
    parser.add_argument(
        "--asm", metavar="LAYER", help="fused: the machine code of that layer's inner loop instead"
    )
    gpu = parser.add_argument_group("GPU rungs")
    gpu.add_argument(
        "--layer",
        metavar="LAYER",
        help="any layer of the network (default: every convolution; not for tensor and network)",
    )
    gpu.add_argument(
        "--device", type=options.device, metavar="NAME",
        help="opencl or cuda, or one of several as in cuda:1 (default: the CUDA GPU that is here, "
        "or else one that is assumed)",
    )  # fmt: skip
    gpu.add_argument("--source", action="store_true", help="the kernels' source instead")
    options.add_precision(gpu)
    options.add_format(parser)


def main(arguments: argparse.Namespace) -> int:
    from tilewright.rungs import find

    rung = find(arguments.rung).at(arguments.precision)
    if rung.precisions:
        from tilewright.cli.explain_fused import explain_fused

        return explain_fused(rung, arguments)
    if rung.convolutions is not None:
        from tilewright.cli.explain_gpu import explain_gpu

        return explain_gpu(rung, arguments)
    if given := [name for name in GPU_OPTIONS if getattr(arguments, name) not in (None, False)]:
        raise TilewrightError(f"--{given[0]} is for GPU rungs, and {rung.name!r} is none")
    return _explain_cpu(arguments)


def _explain_loops(rung: Rung, network: Network, arguments: argparse.Namespace) -> int:
    """What became of every loop of the other CPU rungs."""
    from tilewright.environment import cpu_cores
    from tilewright.rungs.cpu.explain import explain_loops, explain_product
    from tilewright.views import explain_cpu as view

    if rung.vendor:
        raise TilewrightError(f"rung {rung.name!r} is a library's: {rung.idea}")
    for option in ("asm", "batch"):
        if getattr(arguments, option) is not None:
            raise TilewrightError(f"--{option} is for the rung 'fused', not {rung.name!r}")
    if rung.name == "im2col":
        layers = explain_product(network)
    else:
        layers = explain_loops(network, 1 if rung.name == "serial" else cpu_cores())
    output.tables(view.report(rung, network, layers), arguments.format)
    return 0


def _explain_cpu(arguments: argparse.Namespace) -> int:
    from tilewright.climb import prepare
    from tilewright.fuse.cpu.explain import explain, machine_code
    from tilewright.profiling.ceilings import ceilings
    from tilewright.rungs import choose
    from tilewright.runtime.device import CPU
    from tilewright.views.explain import report

    rung = choose(CPU, arguments.rung)
    network = prepare(arguments.net, arguments.weights, None, images=1).network
    if rung.name != "fused":
        return _explain_loops(rung, network, arguments)
    images = arguments.batch or FUSED_BATCH
    if arguments.asm is not None:
        print(machine_code(network, arguments.asm, images))
        return 0
    explained = explain(network, images)
    # A rate that was reached is no more than the ceiling: it is the one kept, or measured again.
    fastest = max(group.rate for group in explained.groups)
    known, problem = ceilings(CPU, rung.open_runtime(CPU, "host").describe(), at_least=fastest)
    explained = replace(explained, peak=max(explained.peak, known.flops or 0.0))
    notices = () if problem is None else (problem,)
    output.tables((*report(network, explained), *notices), arguments.format)
    return 0
