"""Turn a network into another format: ONNX, safetensors and JSON, ConvNetJS text."""

from __future__ import annotations

import argparse
from pathlib import Path

from tilewright.errors import TilewrightError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", metavar="A",
        help="a name of the zoo, an .onnx, .pt2, .safetensors or .json file, or a ConvNetJS folder "
        "with its network.json",
    )  # fmt: skip
    parser.add_argument(
        "target", metavar="B", type=Path,
        help="an .onnx or .safetensors file, a .json file (weights go beside it), or, without an "
        "end, a new ConvNetJS folder",
    )  # fmt: skip
    parser.add_argument(
        "--weights", metavar="FILE|DIR", help="other weights than those that come with A"
    )
    parser.add_argument(
        "--input-scale", type=_numbers, metavar="X[,X...]",
        help="for files that take floating point: pixels enter as value * scale + shift (default: "
        "1/255), one number or one for each channel",
    )  # fmt: skip
    parser.add_argument(
        "--input-shift", type=_numbers, metavar="X[,X...]", help="the same for shift (default: 0)"
    )


def main(arguments: argparse.Namespace) -> int:
    from tilewright.model.formats.convert import write
    from tilewright.model.formats.entering import entering
    from tilewright.model.load import load
    from tilewright.views import console

    network = load(arguments.source, arguments.weights)
    try:
        network = entering(network, arguments.input_scale, arguments.input_shift)
    except TilewrightError as error:
        raise TilewrightError(f"{arguments.source}: {error}") from error
    for path in write(network, arguments.target):
        console.output().print(f"wrote {path}", soft_wrap=True)
    return 0


def _numbers(text: str) -> float | list[float]:
    """Numbers between commas; a quotient such as 1/255 is one."""
    found = []
    for word in text.split(","):
        above, slash, below = word.partition("/")
        try:
            found.append(float(above) / float(below) if slash else float(above))
        except (ValueError, ZeroDivisionError) as error:
            raise argparse.ArgumentTypeError(f"{word[:40]!r} is not a number") from error
    return found[0] if len(found) == 1 else found
