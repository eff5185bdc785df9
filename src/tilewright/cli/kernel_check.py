"""Compile and prove kernel files and rungs: right, or what is wrong with them and where."""

from __future__ import annotations

import argparse

from tilewright.cli import options, output
from tilewright.verbs.arguments import LARGEST_SEED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "rung", nargs="+", metavar="FILE|NAME", help="kernel files, or names of rungs"
    )
    parser.add_argument(
        "--device", type=options.device, metavar="NAME",
        help="opencl or cuda, or one of several as in cuda:1 (default: opencl; of a rung, where it "
        "runs)",
    )  # fmt: skip
    options.add_precision(parser)
    parser.add_argument(
        "--net", metavar="NAME|PATH",
        help="the network whose layers are tried besides odd ones (default: for files all of "
        "the zoo's)",
    )  # fmt: skip
    parser.add_argument(
        "--thorough", action="store_true",
        help="kernel files: the whole proof of the ladder, as for rungs: minutes",
    )  # fmt: skip
    parser.add_argument(
        "--sanitize", action="store_true",
        help="look for races, divergent barriers and accesses outside, too, with Oclgrind "
        "(--device opencl) or NVIDIA's compute-sanitizer (--device cuda)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=_seed, metavar="N", help="the same numbers again (default: fresh ones)"
    )
    parser.add_argument("--json", metavar="FILE|-", help="write what was found as JSON")
    options.add_trust(parser)


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) > LARGEST_SEED:
        raise argparse.ArgumentTypeError(
            f"{text!r:.40} is not a whole number from 0 to {LARGEST_SEED}"
        )
    return int(text)


def main(arguments: argparse.Namespace) -> int:
    from tilewright.verbs.verify import VerifyResult, verify
    from tilewright.views import console

    options.check_outputs(arguments, ("json",), may_be_stdout=("json",))
    screen = console.output()

    def show(one: VerifyResult) -> None:
        if arguments.json != output.TO_STDOUT:
            for line in one.report(min(screen.width, console.WIDTH)):
                screen.print(line, soft_wrap=True)

    result = verify(**options.given(arguments, verify), progress=True, each=show)
    output.write((arguments.json, result.to_json()))
    if arguments.json == output.TO_STDOUT:
        console.write(result.to_json())
    return 0 if result.passed else 1
