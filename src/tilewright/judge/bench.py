"""Kernels among rungs: proven, timed in turns by the judge's clock, ranked.

Kernels of a user's are proven first, each in a worker that is then thrown away: they are compiled
and loaded anew to be timed. Rungs of our own that they are compared with go through workers of the
same kind, so that what a worker costs, all pay. Whoever crashes, hangs or computes something wrong
is refused with the reason, and the others go on.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tilewright.contest import Progress
from tilewright.data.dataset import Dataset
from tilewright.errors import TilewrightError
from tilewright.execute import Program
from tilewright.judge import isolated
from tilewright.judge.allowance import Allowance
from tilewright.judge.arena import Arena, Entry, Row
from tilewright.judge.office import is_native
from tilewright.measure.conditions import Conditions, Watch
from tilewright.measure.samples import Rounds
from tilewright.model.network import Network
from tilewright.plan import uniform
from tilewright.profiling.result import Ceilings
from tilewright.results.bench import COURSE_SIZES
from tilewright.rungs.rung import Rung
from tilewright.runtime.device import CPU, Device
from tilewright.truth.quick import quick
from tilewright.truth.verify import Verdict, fresh_seed, prove

# Turns are short, as a worker stands still between them: no thread of it disturbs another.
LAUNCH_SECONDS = 20.0
MOST_WORKERS = 32  # that are there at once: on PoCL each has some 150 MB
ROUNDS = Rounds(least=9, most=25, seconds=30.0)

Proof = Callable[[Rung], Verdict]


@dataclass(frozen=True)
class Bench:
    """Rows in the order of entry. `ceilings` are of float32; `batch` is what a call computes.

    `overhead` is what asking a worker takes, and is in every time by the judge's clock.
    """

    rows: list[Row]
    device: str
    batch: int
    ceilings: Ceilings
    conditions: Conditions
    notices: tuple[str, ...]
    seed: int
    overhead: float = 0.0

    def ranked(self) -> list[Row]:
        """Those that have a place, fastest first."""
        return sorted((row for row in self.rows if not row.refused), key=lambda row: row.seconds)

    def rank(self, row: Row) -> int | None:
        """Among those of the same precision class that are no libraries; from 1."""
        if row.refused or row.entry.inside:
            return None
        alike = [
            other
            for other in self.ranked()
            if not other.entry.inside and other.entry.rung.precision == row.entry.rung.precision
        ]
        return 1 + alike.index(row)


def bench(
    entries: Sequence[Entry],
    network: Network,
    dataset: Dataset,
    device: Device,
    batch: int,
    rounds: int | Rounds = ROUNDS,
    trust: bool = False,
    seconds: float = LAUNCH_SECONDS,
    proof: Proof | None = None,
    progress: Progress = lambda doing, done, of: None,
) -> Bench:
    """Prove, time and rank. Every judged kernel is asked for a proof, in a worker of its own; the
    usual one is that of `kernel check`. A launch may take so many `seconds`."""
    if len(entries) > MOST_WORKERS:
        raise TilewrightError(
            f"{len(entries)} kernels would take turns, each in a worker of its own, and "
            f"{MOST_WORKERS} are the most: kernel grade judges any number, one after the other"
        )
    allowance = Allowance(seconds=seconds)
    proof = proof or partial(_proven, device=device, network=network)
    rows = {entry.rung.label: Row(entry) for entry in entries}
    sizes = sorted({min(size, len(dataset)) for size in COURSE_SIZES})
    for index, (label, row) in enumerate(rows.items()):
        progress(f"judging {label}", index, len(rows))
        rows[label] = _judged(row, network, dataset, batch, proof, sizes, allowance, trust)
    progress("measuring the device's ceilings", 0, 1)
    arena = Arena(network, device, min(batch, len(dataset)), allowance, trust)
    seed = secrets.randbits(32)
    for label, row in rows.items():
        if not row.refused:
            progress(f"building {label}", 0, 1)
            arena.enter(row.entry)
    watch = Watch(device, cpu_time=arena.cpu_time)
    samples = arena.run(rounds, seed, watch, progress)
    return Bench(
        [arena.result(row, samples) for row in rows.values()], arena.description, arena.images,
        arena.ceilings, watch.conditions(), arena.notices, seed,
        float(np.median(arena.overheads)) if arena.native and arena.overheads else 0.0,
    )  # fmt: skip


def _proven(rung: Rung, device: Device, network: Network) -> Verdict:
    seed = fresh_seed()
    tried = quick(rung.precision, [network], np.random.default_rng(seed))
    return prove(rung, device, tried, seed)


def _judged(
    row: Row, network: Network, dataset: Dataset, batch: int, proof: Proof, sizes: list[int],
    allowance: Allowance, trust: bool,
) -> Row:  # fmt: skip
    """The row with its proof and its answers for the images at hand, or why it is refused."""
    entry = row.entry
    try:
        rung = entry.rung if entry.inside else isolated(entry.rung, allowance, trust=trust)
        if entry.judged:
            verdict = proof(rung)
            row = replace(row, verdict=verdict)
            if verdict.fault is not None:
                return replace(row, refused=f"wrong: {verdict.fault}")
        plan = uniform(network, rung, entry.device, batch)
        answers = Program(network, plan, {rung.name: rung})(dataset.images[: sizes[-1]])
    except TilewrightError as error:
        return replace(row, refused=str(error))
    if dataset.labels is None:
        return row
    right = answers.reshape(len(answers), -1).argmax(1) == dataset.labels[: len(answers)]
    return replace(row, correct={size: float(right[:size].mean()) for size in sizes})


def library(device: Device) -> Entry | None:
    """The yardstick: PyTorch on the same device; for PoCL, whose device is the CPU, on that."""
    from tilewright.rungs.vendor.torch import RUNG

    where = device if device.kind in RUNG.devices else CPU
    if where is CPU and not is_native(device):
        return None
    return None if RUNG.missing(where) else Entry(RUNG, where)
