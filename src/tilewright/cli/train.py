"""Train a network's weights with PyTorch; Ctrl-C stops, the same command again goes on."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.cli import options
from tilewright.errors import TilewrightError
from tilewright.files import check_writable, file_name

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "net", metavar="NET", help="cifar10, resnet8, ece408, ece408-2017 or a .json description"
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR",
        help="a folder with training and test images, CIFAR-10 batches or IDX files "
        "(default: the fetched data set that fits)",
    )  # fmt: skip
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="where to put the weights (NET.safetensors)"
    )
    parser.add_argument(
        "--epochs", type=options.positive, metavar="N", help="passes over the training images"
    )
    parser.add_argument(
        "--images", type=options.positive, metavar="N",
        help="train with the first N training images alone (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=options.positive, default=1, metavar="N", help="(default: %(default)s)"
    )
    options.add_device(parser)


def main(arguments: argparse.Namespace) -> int:
    if find_spec("torch") is None:
        raise TilewrightError("training needs PyTorch: pip install 'tilewright[train]'")
    from tilewright.data.catalogue import open_parts
    from tilewright.model.load import describe
    from tilewright.rungs.vendor import torch as vendor
    from tilewright.train import DEFAULT_RECIPE, RECIPES, Training
    from tilewright.views import console, units

    if reason := vendor.missing(arguments.device):
        raise TilewrightError(f"cannot train on {arguments.device}: {reason}")
    network = describe(arguments.net)
    output = arguments.output or Path(f"{file_name(network.name)}.safetensors")
    if output.suffix != ".safetensors":
        raise TilewrightError(f"--output {output}: the name must end in .safetensors")
    if os.path.realpath(output) == os.path.realpath(arguments.net):
        raise TilewrightError(f"{output} is the network to train: choose another --output")
    check_writable(output.with_name(f"{output.name}.checkpoint"))
    check_writable(output)
    recipe = RECIPES.get(network.name, DEFAULT_RECIPE)
    if arguments.epochs is not None:
        recipe = replace(recipe, epochs=arguments.epochs)
    training, test = open_parts(arguments.data, network.input.shape)
    if arguments.images is not None:
        training = training.first(arguments.images)
    job = Training(network, training, test, recipe, arguments.seed, arguments.device, output)
    resumed = job.resume()
    screen = console.output()
    screen.print(f"{network.name}: {recipe}, seed {arguments.seed}")
    screen.print(f"training: {len(training):,} images of {training.source}", soft_wrap=True)
    screen.print(f"test: {len(test):,} images of {test.source}", soft_wrap=True)
    if resumed:
        screen.print(f"going on after epoch {len(job.history)} ({job.checkpoint})", soft_wrap=True)
    try:
        with console.progress_bar() as bar:
            # Where a bar is shown, lines must go through it.
            say = screen.print if bar.disable else bar.console.print
            while len(job.history) < recipe.epochs:
                number = len(job.history) + 1
                task = bar.add_task(f"epoch {number} of {recipe.epochs}, batches", total=None)
                epoch = job.run_epoch(partial(_advance, bar, task))
                bar.remove_task(task)
                say(
                    f"epoch {epoch.number:3}: loss {epoch.loss:.4f}, "
                    f"training {units.share(epoch.training_accuracy)}, "
                    f"test {units.share(epoch.test_accuracy)}"
                )
    except KeyboardInterrupt:
        if job.history:
            screen.print(
                f"stopped; epochs 1 to {len(job.history)} are kept in {job.checkpoint}: "
                "the same command goes on from there", soft_wrap=True,
            )  # fmt: skip
        raise
    _, accuracy = job.finish()
    screen.print(f"{output}: test accuracy {accuracy:.4f} as stored (float16)", soft_wrap=True)
    return 0


def _advance(bar: Progress, task: TaskID, done: int, total: int) -> None:
    bar.update(task, completed=done, total=total)
