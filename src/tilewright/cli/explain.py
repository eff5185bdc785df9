"""Explain what a rung does with a network: tiles, arithmetic, memory, and what limits it."""

from __future__ import annotations

import argparse

from tilewright.cli import options, output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "rung", metavar="RUNG", help="any rung of the ladder, or a kernel file of your own"
    )
    options.add_network(parser)
    parser.add_argument(
        "--batch", metavar="N", type=options.positive,
        help="images at a time (default: 640 for fused, which takes few by another "
        "schedule than many, as does network; 100 for a GPU rung; tensor takes any)",
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
    parser.add_argument(
        "--json", metavar="FILE|-",
        help="write it as JSON (-: to stdout, instead of tables)",
    )  # fmt: skip
    options.add_format(parser)


def main(arguments: argparse.Namespace) -> int:
    from tilewright.verbs.explain import explain

    options.check_outputs(arguments, ("json",), may_be_stdout=("json",))
    result = explain(**options.given(arguments, explain))
    text = result.to_json()
    output.write((arguments.json, text))
    if result.record.code is not None and arguments.json != output.TO_STDOUT:
        print(result)  # as it is: code has lines of any length
    else:
        output.show(arguments.json, text, result.report(), arguments.format)
    return 0
