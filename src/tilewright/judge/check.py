"""A kernel file held to the proof: compiled, tried and, if it is wrong, told why.

The file's code runs in a worker (`tilewright.judge`), never here.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np

from tilewright import __version__
from tilewright.errors import TilewrightError
from tilewright.files import cache_home
from tilewright.judge import WorkerStopped, isolated
from tilewright.model.layers import Pixels
from tilewright.model.network import Network
from tilewright.precision import Precision
from tilewright.rungs.gpu.design import Geometry
from tilewright.rungs.own.expression import HeaderError
from tilewright.rungs.own.header import KernelFile
from tilewright.rungs.own.rung import allowed, read, rung_of
from tilewright.runtime.complaints import KernelDoesNotCompile
from tilewright.runtime.device import Device
from tilewright.store import key_of
from tilewright.truth.diagnose import Diagnosis, diagnose
from tilewright.truth.quick import TELLING_SHAPES, many_images, quick, telling
from tilewright.truth.trials import Generator, Trial, trials
from tilewright.truth.verify import BATCH, Verdict, prove

# Refused: it cannot be launched. Stopped: its worker was.
Outcome = Literal["right", "wrong", "refused", "does not compile", "stopped"]
# Files of the compiler that are kept, each for one text.
FOLDERS, MOST_FOLDERS = "judged", 50
# Choices of parameters that are tried besides the first: each has to be compiled.
FEW_CHOICES, MOST_CHOICES = 3, 100


@dataclass(frozen=True)
class Checked:
    """What became of a file. `problem` is why it was not tried to its end, in words."""

    path: str
    name: str
    idea: str
    precision: str
    outcome: Outcome
    problem: str = ""
    verdict: Verdict | None = None
    diagnosis: Diagnosis | None = None
    skipped: int = 0  # trials of layers that the file is not for
    seconds: float = 0.0
    choice: str = ""  # of its parameters, where it is not the first

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
    choice = ""
    try:
        verdict = prove(rung, device, everything, seed, not file.atomics, count)
        for others in _choices(file, MOST_CHOICES if thorough else FEW_CHOICES):
            if verdict.fault is not None or not verdict.trials:
                break
            # In the same worker.
            held = replace(
                rung_of(replace(file, parameters=others)), open_runtime=rung.open_runtime
            )
            choice = ", ".join(f"{name} = {value}" for name, (value,) in others.items())
            again = prove(held, device, telling(file.precision, generator), seed, progress=count)
            verdict = _both(verdict, again)
    except KernelDoesNotCompile as error:
        return replace(done, outcome="does not compile", problem=error.report, choice=choice)
    except WorkerStopped as error:
        return replace(done, outcome="stopped", problem=str(error), choice=choice)
    except TilewrightError as error:  # arguments that do not fit, sizes that make no grid
        return replace(done, problem=str(error), choice=choice)
    seconds = time.monotonic() - start
    done = replace(done, verdict=verdict, skipped=tried - verdict.trials, seconds=seconds)
    if verdict.fault is not None:
        assert verdict.fault.evidence is not None
        found = diagnose(verdict.fault.evidence)
        return replace(done, outcome="wrong", diagnosis=found, choice=choice)
    if not verdict.trials:
        why = f": {verdict.unfit}" if verdict.unfit else ""
        return replace(done, problem=f"the file is for none of the layers that are tried{why}")
    return replace(done, outcome="right")


def _choices(file: KernelFile, most: int) -> Iterator[dict[str, tuple[int, ...]]]:
    """Other choices of the parameters than the first that a layer which is tried can have, from all
    over them if there are more."""
    every: dict[tuple[tuple[str, int], ...], None] = {}
    for shape, layer in TELLING_SHAPES:
        stage = Network("layer", Pixels(shape), (layer,)).stages[-1]
        others = islice(allowed(file, Geometry.of(stage)), 1, None)
        every.update(dict.fromkeys(tuple(each.items()) for each in others))
    for choice in list(every)[:: max(1, -(-len(every) // most))]:
        yield {name: (value,) for name, value in choice}


def _both(first: Verdict, second: Verdict) -> Verdict:
    return Verdict(
        first.seed,
        first.trials + second.trials,
        first.outputs + second.outputs,
        max(first.worst, second.worst),
        second.fault,
    )


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
    """All that the ladder is held to, for each network, and a very large batch."""
    yield from many_images(precision, generator)
    for network in networks:
        yield from trials(network, precision, lambda net: False, BATCH, generator)
