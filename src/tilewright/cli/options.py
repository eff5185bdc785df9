"""Options that several verbs share."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.errors import TilewrightError
from tilewright.files import check_writable
from tilewright.verbs.arguments import CLUSTERS, LARGEST, PRECISIONS

if TYPE_CHECKING:
    from tilewright.runtime.device import Device


def add_run(parser: argparse.ArgumentParser) -> None:
    """What to run."""
    add_network(parser)
    add_data(parser)
    parser.add_argument(
        "--images", type=positive, metavar="N", help="the first N images (default: all)"
    )
    add_batch(parser)
    add_device(parser)
    add_memory(parser)
    add_precision(parser)
    parser.add_argument(
        "--rung", metavar="NAME|FILE",
        help="how to compute: a rung, or a kernel file of your own, as in ./mine.cl (default: our "
        "fastest on the device)",
    )  # fmt: skip
    parser.add_argument(
        "--check", action="store_true",
        help="prove the rung on the network's convolutions first; a kernel file always is",
    )  # fmt: skip


def given(arguments: argparse.Namespace, verb: Callable[..., object]) -> dict[str, Any]:
    """The arguments of a verb's function, by their names."""
    return {name: vars(arguments)[name] for name in signature(verb).parameters if name in arguments}


def check_outputs(
    arguments: argparse.Namespace, outputs: Sequence[str], may_be_stdout: Sequence[str]
) -> None:
    """Each output can be written, and is neither another output nor an input."""
    taken = {}
    for option in ("net", "weights", "data", "plan", "compare"):
        paths = getattr(arguments, option, None) or ()
        for path in [paths] if isinstance(paths, str | Path) else paths:
            taken[_real(path)] = option
    for name in outputs:
        given, option = getattr(arguments, name), name.replace("_", "-")
        if given is None:
            continue
        if str(given) == "-":
            if option in may_be_stdout:
                continue
            raise TilewrightError(f"--{option} - is not possible: name a file")
        path = Path(given)
        check_writable(path)
        if path.is_file() or not path.exists():
            other = taken.setdefault(_real(path), option)
            if other != option:
                raise TilewrightError(f"--{option} {path} is the file of --{other}")
        for folder, other in taken.items():
            if path.exists() and folder.is_dir() and folder in _real(path).parents:
                raise TilewrightError(
                    f"--{option} {path} is there already, in the folder of --{other}"
                )


def _real(path: str | Path) -> Path:
    """Without links; one that leads back to itself stays as it is, and its reader complains."""
    return Path(os.path.realpath(path))


def add_network(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--net", default="ece408", metavar="NAME|PATH",
        help="cifar10, ece408, ece408-2017, an .onnx, .pt2, .json or .safetensors file "
        "(default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--weights", metavar="PATH",
        help="a .safetensors file or a folder with a ConvNetJS snapshot "
        "(default: those shipped for NAME)",
    )  # fmt: skip


def add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data", metavar="NAME|PATH",
        help="a data set that `tilewright data` lists, a folder of CIFAR-10 batches, IDX, .npz or "
        ".parquet files or pictures, or such a file (default: one that fits the network)",
    )  # fmt: skip


def positive(text: str) -> int:
    """A whole number from 1 to a billion."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= LARGEST:
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a whole number from 1 to {LARGEST}")
    return value


def add_batch(parser: argparse.ArgumentParser) -> None:
    from tilewright.rungs import DEFAULT_BATCH

    parser.add_argument(
        "--batch", type=positive, default=DEFAULT_BATCH, metavar="N",
        help=f"images at a time; 1 is image by image (default: {DEFAULT_BATCH})",
    )  # fmt: skip


def device(name: str) -> Device:
    from tilewright.runtime.device import Device

    return Device.parse(name)


def add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", type=device, default="cpu", metavar="NAME",
        help="cpu, opencl or cuda, or one of several as in cuda:1; `tilewright devices` lists "
        "them (default: cpu)",
    )  # fmt: skip


def add_precision(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--precision", choices=PRECISIONS,
        help="the arithmetic of rungs with a choice: network (fp16, tf32, tf32x3 or fp32) and "
        "tensor (fp16, tf32 or tf32x3), on cuda; fused (fp32, or 3x3 convolutions by Winograd's "
        "algorithm, in tiles of 2x2 outputs: fp32-winograd, or of 4x4, and 5x5 convolutions, too: "
        "fp32-winograd4), on the CPU (default: fp32)",
    )  # fmt: skip


def add_plan(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(batch=None, device=None)  # which of them are given matters beside --plan
    parser.add_argument(
        "--plan", type=Path, metavar="FILE",
        help="a plan that `run --save-plan` or `tune` wrote: device, rung, memory, batch and "
        "precision are its own",
    )  # fmt: skip


def add_memory(parser: argparse.ArgumentParser, every: bool = False) -> None:
    """`every`: all of them may be asked for at once."""
    from tilewright.memory import DEVICE_PLANS

    more = "; all: each rung under each of them, layer by layer" if every else ""
    parser.add_argument(
        "--memory", metavar="PLAN", choices=(*DEVICE_PLANS, *["all"] * every),
        help=f"how data travels on a GPU: {', '.join(DEVICE_PLANS[:-1])} or {DEVICE_PLANS[-1]}"
        f"{more} (default: {DEVICE_PLANS[0]})",
    )  # fmt: skip


def add_format(parser: argparse.ArgumentParser) -> None:
    from tilewright.views.table import FORMATS

    parser.add_argument(
        "--format", choices=FORMATS, default=FORMATS[0], metavar="FORMAT",
        help=f"of the tables: {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, the last two with all "
        "digits of every number (default: %(default)s)",
    )  # fmt: skip


def add_cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--on", choices=CLUSTERS, help="send the work to workers of a Ray cluster")
    parser.add_argument(
        "--workers", type=positive, metavar="N",
        help="worker processes of the cluster (default: one for each processor or GPU)",
    )  # fmt: skip
    parser.add_argument(
        "--address", metavar="ADDRESS",
        help="of a Ray cluster that runs, as in auto or HOST:6379 (default: one of this machine's "
        "own is started, and ended afterwards)",
    )  # fmt: skip


def add_rounds(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--repeats", type=positive, metavar="N",
        help="timed rounds after one of warm-up (default: 9 to 25, until times are certain)",
    )  # fmt: skip


def add_trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trust", action="store_true",
        help="run kernels also where the system cannot isolate them: they could do what you can",
    )  # fmt: skip
