"""Kernels among rungs: proven, timed in turns by the judge's clock, ranked.

Kernels of a user's are proven first, each in a worker that is then thrown away: they are compiled
and loaded anew to be timed. Rungs of our own that they are compared with go through workers of the
same kind, so that what a worker costs, all pay. Whoever crashes, hangs or computes something wrong
is refused with the reason, and the others go on.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce

import numpy as np

from tilewright.checks import quick
from tilewright.climb import Progress, alone
from tilewright.conditions import Conditions, Watch
from tilewright.data.dataset import Dataset
from tilewright.errors import TilewrightError
from tilewright.execute import Program
from tilewright.guards import guarding
from tilewright.judge import isolated
from tilewright.judge.allowance import Allowance
from tilewright.judge.bout import Bout
from tilewright.judge.lanes import DistantLane, Lane, LibraryLane, SharedLane
from tilewright.judge.remote import ALIGNMENT, Office, RemoteRuntime, is_native
from tilewright.ladder.gpu.prepare import open_runtime
from tilewright.ladder.rung import Rung
from tilewright.measure import Rounds, Sample, interleave
from tilewright.model.network import Network, Stage
from tilewright.plan import uniform
from tilewright.profile.ceilings import Known, better, ceilings, measure
from tilewright.profile.result import Ceilings
from tilewright.runtime.device import CPU, Device
from tilewright.verify import Verdict, fresh_seed, prove

# The course looks at correctness for so many images.
COURSE_SIZES = (100, 1000, 10_000)
# Turns are short, as a worker stands still between them: no thread of it disturbs another.
LAUNCH_SECONDS = 60.0
ASKED = 9  # times for nothing, to know what asking takes
TRIES = 3  # of the ceilings, before a time is called impossible
ROUNDS = Rounds(least=9, most=25, seconds=30.0)

Proof = Callable[[Rung], Verdict]


@dataclass(frozen=True)
class Entry:
    """Who takes part: a kernel that is judged, a rung it is compared with, or a library."""

    rung: Rung
    device: Device
    judged: bool = False

    @property
    def inside(self) -> bool:
        """Whether it runs in this process: a library's kernels are nobody's to judge."""
        return self.rung.vendor


@dataclass(frozen=True)
class Row:
    """What came out. `refused` is why it has no place; times are of one call over a batch.

    `correct` is the share of images that were classified rightly, by how many there were.
    """

    entry: Entry
    verdict: Verdict | None = None
    refused: str | None = None
    warm: dict[str, Sample] = field(default_factory=dict)
    cold: dict[str, Sample] = field(default_factory=dict)
    fingerprints: dict[str, tuple[str, ...]] = field(default_factory=dict)
    correct: dict[int, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """All convolutions, warm."""
        return sum(sample.median for sample in self.warm.values())


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
    watch = Watch(device)
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
    rung = entry.rung if entry.inside else isolated(entry.rung, allowance, trust=trust)
    try:
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


class Arena:
    """Convolutions of several rungs that take turns. The clock goes only while one is timed."""

    def __init__(
        self, network: Network, device: Device, images: int, allowance: Allowance, trust: bool
    ) -> None:
        self.network, self.device, self.images = network, device, images
        self.allowance, self.trust = allowance, trust
        self.stages = [stage for stage in network.stages if stage.kind == "conv"]
        if not self.stages:
            raise TilewrightError(f"network {network.name!r} has no convolution to time")
        self.native = is_native(device)
        self.generator = np.random.default_rng(secrets.randbits(64))
        self.bouts: dict[tuple[str, str], Bout] = {}
        self.refused: dict[str, str] = {}
        self.taken: dict[tuple[str, str], list[tuple[float, str]]] = {}
        self.elapsed = 0.0
        self.overheads: list[float] = []
        self.description = open_runtime(device, "resident").describe()
        self.notices: tuple[str, ...] = ()
        self.ceilings = self._ceilings("fp32")

    def _ceilings(self, precision: str) -> Ceilings:
        found, problem = ceilings(self.device, self.description, precision)
        self.notices = tuple(dict.fromkeys((*self.notices, *([problem] if problem else []))))
        return found

    def _again(self, known: Ceilings) -> Ceilings:
        """The best of what is known and of a few more tries."""
        tries = [measure(self.device, self.description, known.precision) for _ in range(TRIES)]
        return reduce(better, tries, Known(known, "")).ceilings

    def enter(self, entry: Entry) -> None:
        label, rung = entry.rung.label, entry.rung
        # Nothing but a GPU's tensor cores has a faster arithmetic; a library's kernels are known.
        cuda = self.device.kind == "cuda"
        found = self._ceilings(rung.precision.name) if cuda else self.ceilings
        if entry.inside:
            found = replace(found, flops=None, bytes=None)
        try:
            for stage, lane in self._lanes(entry):
                self.bouts[label, stage.name] = Bout(
                    lane, stage, self.network.parameters, rung.precision, self.images, found,
                    partial(self._again, found), self.generator,
                )  # fmt: skip
        except TilewrightError as error:
            self._refuse(label, str(error))

    def _lanes(self, entry: Entry) -> Iterator[tuple[Stage, Lane]]:
        """One for each convolution: all of a rung's in one worker, loaded anew."""
        given = [(self.images, *stage.input_shape) for stage in self.stages]
        made = [(self.images, *stage.output_shape) for stage in self.stages]
        if entry.inside:
            for stage, x, out in zip(self.stages, given, made, strict=True):
                yield stage, LibraryLane(self._program(entry, entry.rung, stage), x, out)
            return
        size = sum(4 * int(np.prod(shape)) + ALIGNMENT for shape in (*given, *made))
        shared = size if self.native else 0
        office = Office(self.device, self.allowance, trust=self.trust, shared=shared)
        opened = guarding(lambda device, memory: RemoteRuntime(device, office))
        rung = replace(entry.rung, open_runtime=opened)
        kind = SharedLane if self.native else DistantLane
        lanes = [
            kind(office, self._program(entry, rung, stage), x, out)
            for stage, x, out in zip(self.stages, given, made, strict=True)
        ]
        for lane, x in zip(lanes, given, strict=True):
            lane.call(np.zeros(x, np.float32), cold=False)  # PoCL links at the first launch
        office.connection.seal()
        self.overheads += [office.nothing() for _ in range(ASKED)]
        yield from zip(self.stages, lanes, strict=True)

    def _program(self, entry: Entry, rung: Rung, stage: Stage) -> Program:
        network = alone(self.network, stage)
        return Program(
            network, uniform(network, rung, entry.device, self.images), {rung.name: rung}
        )

    def run(
        self, rounds: int | Rounds, seed: int, watch: Watch, progress: Progress
    ) -> dict[tuple[str, str], Sample]:
        done = 0

        def step(subject: tuple[str, str]) -> None:
            nonlocal done
            done += 1
            least = rounds if isinstance(rounds, int) else rounds.least
            total = len(self.bouts) * (least + 1)
            progress(f"timing {subject[0]}", done, max(done, total))

        return interleave(
            {subject: self._turn(subject) for subject in self.bouts}, rounds,
            collect=self._collect, progress=step, seed=seed, between=watch,
            clock=lambda: self.elapsed, decisive=lambda subject: subject[0] not in self.refused,
        )  # fmt: skip

    def _turn(self, subject: tuple[str, str]) -> Callable[[], tuple[float, str] | None]:
        label = subject[0]

        def turn() -> tuple[float, str] | None:
            if label in self.refused:
                return None
            try:
                warm, cold, fingerprint = self.bouts[subject].turn()
            except TilewrightError as error:
                self._refuse(label, str(error))
                return None
            self.elapsed += warm
            return cold, fingerprint

        return turn

    def _collect(self, subject: tuple[str, str], taken: tuple[float, str] | None) -> None:
        if taken is not None:
            self.taken.setdefault(subject, []).append(taken)

    def _refuse(self, label: str, reason: str) -> None:
        self.refused.setdefault(label, reason)

    def result(self, row: Row, samples: dict[tuple[str, str], Sample]) -> Row:
        label = row.entry.rung.label
        if row.refused or label in self.refused:
            return replace(row, refused=row.refused or self.refused[label])
        names = [stage.name for stage in self.stages]
        return replace(
            row,
            warm={name: samples[label, name] for name in names},
            cold={n: Sample(tuple(cold for cold, _ in self.taken[label, n])) for n in names},
            fingerprints={n: tuple(mark for _, mark in self.taken[label, n]) for n in names},
        )


def library(device: Device) -> Entry | None:
    """The yardstick: PyTorch on the same device; for PoCL, whose device is the CPU, on that."""
    from tilewright.ladder.vendor.torch import RUNG

    where = device if device.kind in RUNG.devices else CPU
    if where is CPU and not is_native(device):
        return None
    return None if RUNG.missing(where) else Entry(RUNG, where)
