"""A kernel file held to the proof: compiled, tried and, if it is wrong, told why.

Every shape has to be compiled, which takes the most time: there are few, and each is odd in several
ways. Together they have windows of all kinds (rectangular, strides that differ, padding on one axis
alone, larger than the picture's half), one channel and many, planes smaller than a tile, a row more
than 16 and 32, more filters than 32; then the zoo's layers, and a large batch. The kinds of numbers
are those of the whole proof (`tilewright.verify`), the most telling ones first.

The file's code runs in a worker (`tilewright.judge`), never here.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tilewright import __version__
from tilewright.diagnose import Diagnosis, diagnose
from tilewright.errors import TilewrightError
from tilewright.files import cache_home
from tilewright.judge import WorkerStopped, isolated
from tilewright.ladder.own.expression import HeaderError
from tilewright.ladder.own.header import KernelFile
from tilewright.ladder.own.rung import read, rung_of
from tilewright.model.layers import Convolution, Shape
from tilewright.model.network import Network
from tilewright.precision import Precision
from tilewright.runtime.complaints import KernelDoesNotCompile
from tilewright.runtime.device import Device
from tilewright.store import key_of
from tilewright.trials import Generator, Trial, layer_trials, trials
from tilewright.verify import BATCH, Verdict, prove

SHAPES: tuple[tuple[Shape, Convolution], ...] = (
    ((3, 11, 13), Convolution(5, 3, padding=1)),
    ((2, 17, 19), Convolution(7, (3, 5), stride=(2, 3), padding=(1, 0))),
    ((33, 6, 5), Convolution(17, 3, padding=2)),
    ((5, 24, 21), Convolution(35, 5)),
    ((4, 35, 18), Convolution(3, (5, 2), stride=2, padding=(2, 1), bias=False)),
    ((1, 9, 37), Convolution(1, 1)),
)
# Files of the compiler that are kept, each for one text.
FOLDERS, MOST_FOLDERS = "judged", 50
# Exact sums first: what is wrong shows as a difference of whole numbers.
TELLING = "whole numbers, large inputs"
KINDS = (
    *(TELLING, "whole numbers, large weights", "impulse weights", "covering weights"),
    *("real numbers", "NaN and infinity"),
)
LAYER_KINDS = (TELLING, "real numbers")
LAYER_CALLS = ((0, 1), (2,))
# Batches that divide nothing and a large one, and the images they are made of.
BATCHES = (37, 257, 1, 130)


@dataclass(frozen=True)
class Checked:
    """What became of a file. `problem` is why it was not tried to its end, in words."""

    path: str
    name: str
    idea: str
    precision: str
    outcome: str  # right, wrong, refused (it cannot be launched), does not compile, stopped
    problem: str = ""
    verdict: Verdict | None = None
    diagnosis: Diagnosis | None = None
    skipped: int = 0  # trials of layers that the file is not for
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return self.outcome == "right"


def check(
    path: Path,
    device: Device,
    networks: Sequence[Network],
    seed: int,
    thorough: bool = False,
    trust: bool = False,
    progress: Callable[[int], None] = lambda trials: None,
) -> Checked:
    """One file. What is wrong with it is an outcome; what is wrong with the machine is raised."""
    start = time.monotonic()
    try:
        file = read(path)
        rung = isolated(rung_of(file), kept=_kept(file), trust=trust)
    except HeaderError as error:
        return Checked(str(path), path.stem, "", "", "refused", str(error))
    done = Checked(str(path), file.name, file.idea, file.precision.name, "refused")
    if device.kind not in rung.devices:
        where = " or ".join(f"--device {kind}" for kind in rung.devices)
        raise TilewrightError(f"{path} runs with {where}, not on {device}")
    generator = np.random.default_rng(seed)
    tried = 0

    def count() -> None:
        nonlocal tried
        tried += 1
        progress(tried)

    everything = (_whole if thorough else quick)(file.precision, networks, generator)
    try:
        verdict = prove(rung, device, everything, seed, not file.atomics, count)
    except KernelDoesNotCompile as error:
        return replace(done, outcome="does not compile", problem=error.report)
    except WorkerStopped as error:
        return replace(done, outcome="stopped", problem=str(error))
    except TilewrightError as error:  # arguments that do not fit, sizes that make no grid
        return replace(done, problem=str(error))
    seconds = time.monotonic() - start
    done = replace(done, verdict=verdict, skipped=tried - verdict.trials, seconds=seconds)
    if verdict.fault is not None:
        assert verdict.fault.evidence is not None
        return replace(done, outcome="wrong", diagnosis=diagnose(verdict.fault.evidence))
    if not verdict.trials:
        return replace(done, problem="the file is for none of the layers that are tried")
    return replace(done, outcome="right")


def _kept(file: KernelFile) -> Path:
    """Where compilers keep what they make of this text and no other; the oldest of many go."""
    home = cache_home() / FOLDERS
    mine = home / key_of(file.text, __version__)
    mine.mkdir(mode=0o700, parents=True, exist_ok=True)
    mine.touch()
    folders = sorted(home.iterdir(), key=lambda folder: folder.stat().st_mtime, reverse=True)
    for folder in folders[MOST_FOLDERS:]:
        shutil.rmtree(folder, ignore_errors=True)
    return mine


def _whole(
    precision: Precision, networks: Sequence[Network], generator: Generator
) -> Iterator[Trial]:
    """All that the ladder is held to, for each network."""
    for network in networks:
        yield from trials(network, precision, lambda net: False, BATCH, generator)


def quick(
    precision: Precision, networks: Sequence[Network], generator: Generator
) -> Iterator[Trial]:
    """The odd shapes with all kinds of numbers, a large batch, then the networks' convolutions."""
    for shape, layer in SHAPES:
        yield from _chosen(shape, layer, KINDS, precision, generator)
    shape, layer = SHAPES[0]
    for trial in _chosen(shape, layer, (TELLING,), precision, generator):
        yield replace(trial, inputs="large batches", calls=_batches(len(trial.images)))
    seen = {SHAPES[0]}
    for network in networks:
        for stage in network.stages:
            if not isinstance(stage.layer, Convolution) or (stage.input_shape, stage.layer) in seen:
                continue
            seen.add((stage.input_shape, stage.layer))
            for trial in _chosen(stage.input_shape, stage.layer, LAYER_KINDS, precision, generator):
                where = f"{trial.inputs} ({stage.name} of {network.name})"
                yield replace(trial, inputs=where, calls=LAYER_CALLS)


def _chosen(
    shape: Shape,
    layer: Convolution,
    kinds: Sequence[str],
    precision: Precision,
    generator: Generator,
) -> list[Trial]:
    made = {trial.inputs: trial for trial in layer_trials(shape, layer, precision, generator)}
    return [made[kind] for kind in kinds]


def _batches(images: int) -> tuple[tuple[int, ...], ...]:
    """Calls in which no image follows itself, at its place or at the next."""
    return tuple(
        tuple((number + place) % images for place in range(size))
        for number, size in enumerate(BATCHES)
    )
