"""Compile and prove kernel files: right, or what is wrong with them and where."""

from __future__ import annotations

import argparse
from pathlib import Path

from tilewright.cli import options
from tilewright.errors import TilewrightError
from tilewright.files import atomic_write, check_writable

LARGEST_SEED = 2**32 - 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", type=Path, help="kernel files")
    parser.add_argument(
        "--device", type=options.device, default="opencl", metavar="NAME",
        help="opencl or cuda, or one of several as in cuda:1 (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--net", metavar="NAME|PATH",
        help="the network whose convolutions are tried besides odd ones (default: all of the "
        "zoo's)",
    )  # fmt: skip
    parser.add_argument(
        "--thorough", action="store_true", help="the whole proof of the ladder: minutes"
    )
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
    from tilewright import environment
    from tilewright.judge.check import check
    from tilewright.model import zoo
    from tilewright.model.load import describe
    from tilewright.results import document
    from tilewright.results.check import record
    from tilewright.runtime.registry import gpu_backend
    from tilewright.truth.findings import Sanitized
    from tilewright.truth.sanitize import sanitize
    from tilewright.truth.verify import fresh_seed
    from tilewright.views import check as view
    from tilewright.views import console

    device, screen = arguments.device, console.output()
    if device.kind == "cpu":
        raise TilewrightError("kernel files run with --device opencl or cuda, not on cpu")
    if reason := gpu_backend(device.kind).missing(device):
        raise TilewrightError(f"device '{device}': {reason}")
    for path in arguments.files:
        if not path.exists():  # what is there, but is no kernel, does not keep others from theirs
            raise TilewrightError(f"cannot read the kernel file {path}: there is none")
    if arguments.json not in (None, "-"):
        check_writable(Path(arguments.json))
    if arguments.net is None:
        networks = [make() for make in zoo.ZOO.values()]
    else:
        networks = [describe(arguments.net)]
    seed = fresh_seed() if arguments.seed is None else arguments.seed
    to_stdout = arguments.json == "-"
    found = []
    for number, path in enumerate(arguments.files):
        with console.progress_line() as tell:

            def progress(doing: str, path: Path = path, number: int = number) -> None:
                tell(f"{path.name}: {doing}", number, len(arguments.files))

            checked = check(
                path, device, networks, seed, arguments.thorough, arguments.trust,
                lambda trials: progress(f"trial {trials}"),
            )  # fmt: skip
            sanitized: Sanitized | None = None
            if arguments.sanitize and checked.outcome in ("right", "wrong", "stopped"):
                sanitized = sanitize(path, device, progress)
        found.append((checked, sanitized))
        if not to_stdout:
            for line in view.lines(checked, sanitized, seed):
                screen.print(line, soft_wrap=True)
    made = record(found, str(device), seed, arguments.thorough, environment.fingerprint())
    text = document.text(made)
    if to_stdout:
        console.write(text)
    elif arguments.json is not None:
        with atomic_write(Path(arguments.json)) as file:
            file.write(text.encode())
    passed = all(each.passed and not (more and more.findings) for each, more in found)
    return 0 if passed else 1
