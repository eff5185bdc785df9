"""Convolutions of several rungs that take turns: each in a worker of its own, all by one clock."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial, reduce

import numpy as np

from tilewright.contest import Progress, alone
from tilewright.errors import TilewrightError
from tilewright.execute import Program
from tilewright.judge.allowance import Allowance
from tilewright.judge.bout import Bout
from tilewright.judge.lanes import DistantLane, Lane, LibraryLane, SharedLane
from tilewright.judge.office import ALIGNMENT, Office, is_native
from tilewright.judge.process import cpu_seconds
from tilewright.judge.remote import RemoteRuntime
from tilewright.measure.conditions import CpuTime, Watch, read_times
from tilewright.measure.samples import Rounds, Sample, interleave
from tilewright.model.network import Network, Stage
from tilewright.plan import uniform
from tilewright.profiling.ceilings import Known, better, ceilings, measure
from tilewright.profiling.result import Ceilings
from tilewright.rungs.gpu.prepare import open_runtime
from tilewright.rungs.rung import Rung
from tilewright.runtime.device import Device
from tilewright.truth.guards import guarding
from tilewright.truth.verify import Verdict

ASKED = 9  # times for nothing, to know what asking takes
TRIES = 3  # of the ceilings, before a time is called impossible


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
        self.workers: list[int] = []
        self.description = open_runtime(device, "resident").describe()
        self.notices: tuple[str, ...] = ()
        self.ceilings = self._ceilings("fp32")

    def cpu_time(self) -> CpuTime:
        """Of the machine; what the workers use is our own."""
        times = read_times()
        return replace(times, own=times.own + sum(map(cpu_seconds, self.workers)))

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
        self.workers.append(office.connection.process.pid)
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
            by_host=lambda subject: False,  # a worker warms up itself, and the clock is its own
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
