"""Options that several verbs share."""

from __future__ import annotations

import argparse

LARGEST = 10**9


def add_network(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--net", default="ece408", metavar="NAME|PATH",
        help="cifar10, ece408, ece408-2017, a .json description or a .safetensors file "
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
        help="a data set that `tilewright data` lists, a folder of CIFAR-10 batches, IDX files or "
        "pictures, or a .bin, .npz or IDX file (default: one that fits the network)",
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
    from tilewright.ladder import DEFAULT_BATCH

    parser.add_argument(
        "--batch", type=positive, default=DEFAULT_BATCH, metavar="N",
        help="images at a time; 1 is image by image (default: %(default)s)",
    )  # fmt: skip


def add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", default="cpu", metavar="NAME",
        help="cpu, opencl or cuda, or one of several as in cuda:1; `tilewright devices` lists "
        "them (default: %(default)s)",
    )  # fmt: skip


def add_precision(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--precision", choices=("fp16", "tf32", "fp32"),
        help="the arithmetic of rungs with a choice: tensor and network, on cuda (default: fp16)",
    )  # fmt: skip


def add_memory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--memory", metavar="PLAN",
        choices=("resident", "streamed", "per-layer", "managed"),
        help="how data travels on a GPU: resident, streamed, per-layer or managed "
        "(default: resident)",
    )  # fmt: skip
