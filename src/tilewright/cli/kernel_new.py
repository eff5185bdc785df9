"""Write a kernel file to start from: working, commented, and ready for `--rung`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.errors import TilewrightError
from tilewright.files import reason

if TYPE_CHECKING:
    from tilewright.runtime.dialect import Language


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="what tables call it; the file is NAME.cl")
    parser.add_argument(
        "--like", default="direct", metavar="RUNG",
        help="the rung to start from (default: %(default)s)",
    )  # fmt: skip
    plain = parser.add_mutually_exclusive_group()
    plain.add_argument(
        "--cuda", action="store_true", help="plain CUDA C, in NAME.cu, for --device cuda"
    )
    plain.add_argument("--opencl", action="store_true", help="plain OpenCL C, for --device opencl")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to (default: ./NAME.cl)")


def main(arguments: argparse.Namespace) -> int:
    from tilewright.rungs.own.start import start

    language: Language = "dialect"
    if arguments.cuda or arguments.opencl:
        language = "cuda" if arguments.cuda else "opencl"
    suffix = ".cu" if language == "cuda" else ".cl"
    text = start(arguments.name, arguments.like, language)
    path = arguments.out or Path(f"{arguments.name}{suffix}")
    if path.suffix != suffix:
        raise TilewrightError(f"--out {path}: the file's name must end in {suffix}")
    try:
        with path.open("x") as file:  # nobody's work is overwritten
            file.write(text)
    except FileExistsError as error:
        raise TilewrightError(f"{path} is there already, and stays as it is") from error
    except OSError as error:
        raise TilewrightError(f"cannot write {path}: {reason(error)}") from error
    device = "cuda" if language == "cuda" else "opencl"
    shown = path if path.is_absolute() else f"./{path}"
    print(f"wrote {path}: a kernel like {arguments.like}, commented")
    print(f"next: tilewright run --device {device} --rung {shown} --images 100")
    return 0
