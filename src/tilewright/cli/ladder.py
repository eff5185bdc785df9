"""Verify every rung, then time all of them in turns: warm-up, rounds, medians, intervals."""

from __future__ import annotations

import argparse

from tilewright.cli import keeping, options, output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_network(parser)
    options.add_data(parser)
    parser.add_argument(
        "--images", type=options.positive, metavar="N",
        help="images in each repeat (default: 100; with --quick 10, on OpenCL 4)",
    )  # fmt: skip
    options.add_batch(parser)
    options.add_device(parser)
    options.add_memory(parser, every=True)
    parser.add_argument(
        "--rungs", default=(), metavar="A,B,C",
        help="only these rungs; on a GPU also rungs of the CPU, timed beside it (default: all of "
        "the device)",
    )  # fmt: skip
    parser.add_argument(
        "--against", metavar="RUNG",
        help="compare every rung with this one (default: with the one that it changes)",
    )  # fmt: skip
    parser.add_argument(
        "--quick", action="store_true",
        help="a first look in seconds: a short proof, few images, few rounds",
    )  # fmt: skip
    parser.add_argument(
        "--prove", action="store_true",
        help="prove every rung, also those that were proven on this machine before and have not "
        "changed since",
    )  # fmt: skip
    parser.add_argument(
        "--repeats", type=options.positive, metavar="N",
        help="timed rounds after one of warm-up (default: 9, and more until every network's time "
        "is certain to 2 %%, up to 49 or a minute; on CUDA, whose own time counts, 4 seconds)",
    )  # fmt: skip
    parser.add_argument(
        "--rung", action="append", default=[], metavar="FILE",
        help="a kernel file of your own to be among the rungs, as in ./mine.cl; may be given "
        "several times",
    )  # fmt: skip
    parser.add_argument(
        "--plan", action="append", default=[], metavar="FILE",
        help="a plan that `tune` or `run --save-plan` wrote for this device, batch and memory, to "
        "be among the rungs; may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--json", metavar="FILE|-",
        help="write verdicts and raw samples as JSON (-: to stdout, instead of the table)",
    )  # fmt: skip
    options.add_cluster(parser)
    options.add_format(parser)
    keeping.add_no_save(parser)


def main(arguments: argparse.Namespace) -> int:
    from tilewright.verbs.ladder import ladder

    options.check_outputs(arguments, ("json",), may_be_stdout=("json",))
    result = ladder(**options.given(arguments, ladder), progress=True)
    text = result.to_json()
    output.write((arguments.json, text))
    with keeping.keeping(result.record, arguments):
        output.show(arguments.json, text, result.report(), arguments.format)
    return 0 if result.passed else 1
