"""The whole ladder in one go: every rung verified, then all of them timed in turns."""

from __future__ import annotations

import itertools
import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from tilewright import environment
from tilewright.contest import RANDOM_SEED, Contest, Measured, Progress, begin_convolutions
from tilewright.data import drawn
from tilewright.data.catalogue import SAMPLE, Source, open_data
from tilewright.data.dataset import Dataset, checked_labels
from tilewright.errors import TilewrightError, unknown
from tilewright.judge import WorkerStopped
from tilewright.measure.conditions import Conditions, Watch
from tilewright.measure.samples import Rounds, Sample
from tilewright.model.layers import MissingForm
from tilewright.model.load import Net, Weights, load
from tilewright.model.network import Network
from tilewright.plan import Plan
from tilewright.precision import FLOAT32
from tilewright.profiling.ceilings import ceilings
from tilewright.results.climbed import HOST
from tilewright.results.ladder import ALL
from tilewright.rungs import not_among, rungs, together
from tilewright.rungs.rung import Rung
from tilewright.runtime import HostArray, cuda
from tilewright.runtime.device import CPU, Device
from tilewright.runtime.dialect import DoesNotFit
from tilewright.truth.before_run import in_worker, prove_plan
from tilewright.truth.kept import KeptProofs
from tilewright.truth.shared import compile_shared
from tilewright.truth.side_by_side import Asked, as_they_come, room, shares, side_by_side
from tilewright.truth.trials import random_parameters
from tilewright.truth.verify import Verdict, fresh_seed, verify, verify_briefly

Proof = Callable[[Rung, Callable[[], None]], Verdict]  # told of each trial


@dataclass(frozen=True)
class Proofs:
    """How rungs are proven. `begun` are verdicts to come, by the labels of rungs: those that are
    being proven at the same time, elsewhere.
    """

    prove: Proof
    begun: Mapping[str, Future[Any]] = field(default_factory=dict)


# Given rungs and the proof of one, a way to have them proven elsewhere at the same time.
Elsewhere = Callable[[Sequence[Rung], Proof], AbstractContextManager[Proofs]]
SAMPLE_CLASSES = 10  # of the sample that ships, which networks of one channel are measured on


@dataclass(frozen=True)
class Subject:
    """What the ladder is measured on."""

    network: Network
    dataset: Dataset
    weights_note: str


def prepare(
    net: Net, weights: Weights | None, data: Source | None, images: int, or_all: bool = False
) -> Subject:
    """The network and images to measure on; `or_all`, if there are fewer.

    Time does not depend on values, so what is not here is made, and the note or the data set's
    source says so: random weights where none are shipped, pictures where no data set is named.
    """
    network = load(net, weights)
    note = "trained weights" if network.parameters else "random weights"
    if not network.parameters:
        generator = np.random.default_rng(RANDOM_SEED)
        network = network.with_parameters(random_parameters(network, generator))
    shape = network.input.shape
    if data is None:
        enough = math.prod(network.output_shape) >= SAMPLE_CLASSES
        data = SAMPLE if shape[0] == 1 and enough else drawn.NAME
    made = isinstance(data, str) and data == drawn.NAME
    dataset = open_data(data, shape, images if made or not or_all else None)
    dataset = dataset.first(min(images, len(dataset)))
    if dataset.labels is not None:
        checked_labels(dataset.labels, math.prod(network.output_shape), dataset.source)
    return Subject(network, dataset, note)


@dataclass(frozen=True)
class Ladder:
    """Every rung's row, in the ladder's order; the device in words and its measured peak FLOP/s.

    `seed` is what the order of the turns was drawn from; `notices` say what is wrong with the peak.
    `doubt` is the share of the processors' time that was others': ratios are uncertain by it.
    `against` names the rung that all are compared with, if it is not the one that each changes;
    `short` says that proofs were short ones.
    """

    device: str
    peak: float | None
    rows: list[Row]
    seed: int
    conditions: Conditions
    notices: tuple[str, ...] = ()
    doubt: float = 0.0
    against: str | None = None
    short: bool = False

    def changed(self, row: Row) -> Row | None:
        """The row that one of these is to be compared with."""
        return changed(row, self.rows, self.against)


@dataclass(frozen=True)
class Planned:
    """A plan to be among the rungs, and those that it names."""

    name: str
    plan: Plan
    rungs: Mapping[str, Rung]

    @property
    def rung(self) -> Rung:
        """What it is called, and compared by, on the ladder."""
        idea = "each layer as its plan says"
        whole, single = together(self.plan, self.rungs), len(self.rungs) == 1
        against = whole.name if single else None
        return replace(whole, name=self.name, idea=idea, against=against, precisions=())


@dataclass(frozen=True)
class Row:
    """A rung's place on the ladder. What could not be had is None, with the reason in `missing`.

    `memory` is its memory plan where the ladder has each rung under several, or the CPU on a
    GPU's ladder. `measured` is None where nothing was timed. `planned` is what it computes by, if
    that is a plan and not the rung's own choice. `place` counts the ladder's rungs, in whatever
    order they are proven.
    """

    rung: Rung
    missing: str | None = None
    verdict: Verdict | None = None
    measured: Measured | None = None
    memory: str | None = None
    planned: Planned | None = None
    place: int = 0

    @property
    def name(self) -> str:
        return self.rung.label if self.memory is None else f"{self.rung.label}, {self.memory}"

    @property
    def network(self) -> Sample | None:
        return None if self.measured is None else self.measured.network

    @property
    def ranked(self) -> Sample | None:
        """What it is compared by: the time on a GPU, where there is one. What copies take is the
        same for all rungs, and would make them alike.
        """
        return None if self.measured is None else self.measured.device or self.measured.network


class Audience(Protocol):
    """Who watches a climb."""

    def proven(self, row: Row) -> None:
        """A rung was proven, or found wrong, or does not fit."""

    def timed(self, name: str, seconds: float) -> None:
        """A turn of a row was timed."""


class Nobody:
    def proven(self, row: Row) -> None:
        pass

    def timed(self, name: str, seconds: float) -> None:
        pass


NOBODY = Nobody()


def changed(row: Row, rows: Sequence[Row], against: str | None = None) -> Row | None:
    """The row that a rung is to be compared with: of the rung it changes, in the same precision
    where that one has a choice, and under the same memory plan; None where there is none or it was
    not timed. `against` names another rung for all.
    """
    wanted = against or row.rung.against
    named = [
        other for other in rows
        if other.measured and wanted in (other.rung.name, other.rung.label)
        and other.memory in (row.memory, None, HOST)
    ]  # fmt: skip
    for other in named:
        if against or not other.rung.precisions or other.rung.precision == row.rung.precision:
            return None if other is row else other
    return None


def climb(
    network: Network,
    images: HostArray,
    device: Device,
    batch: int,
    repeats: int | Rounds,
    memory: str | None = None,
    guests: Sequence[Rung] = (),
    own: Sequence[Rung] = (),
    progress: Progress = lambda doing, done, of: None,
    *,
    planned: Sequence[Planned] = (),
    names: Sequence[str] = (),
    against: str | None = None,
    short: bool = False,
    audience: Audience = NOBODY,
    elsewhere: Elsewhere | None = None,
    keep: bool = False,
    anew: bool = False,
) -> Ladder:
    """Verify and time rungs of a device's ladder on a network and some images: all, or those with
    `names`.

    A rung that cannot run, or computes something wrong, has a row that says so and is not timed.
    `own` are rungs in files of a user's: each has its place behind the rung that it changes.
    `guests` are rungs that are not on the ladder: they are timed with the others, unverified.
    `planned` have a row each at the end, proven on the network's layers with what they chose.
    With `memory` ALL each rung has a row for every memory plan, and the CPU's serial loops one.
    A `short` proof is of the network's own layers. Rungs are timed here, in turns, wherever they
    are proven. If proofs are to be `keep`t, those that this machine has are believed, unless all is
    to be proven `anew`.
    """
    wanted = [*names, against] if names and against else names
    every = _chosen(device, wanted)
    chosen = [each for each in every if each.label in names or _new(each, network, device)]
    ladder = with_own(chosen, own)
    if memory == ALL and device.is_gpu and (serial := rungs(CPU)[0]) not in ladder:
        ladder = [serial, *ladder]
    plans = [
        Row(each.rung, memory=each.plan.memory if memory == ALL else None, planned=each,
            place=len(ladder))
        for each in planned
    ]  # fmt: skip
    named = (*ladder, *guests, *(row.rung for row in plans))
    if against and not any(against in (each.name, each.label) for each in named):
        raise unknown("rung on this ladder", against, [each.name for each in named])
    size = min(batch, len(images))  # the batch that is timed is tried, too
    kept = None
    if keep and not short and elsewhere is None:  # of this machine, and whole
        kept = KeptProofs(network, size, anew)
    late: list[Rung] = []  # are looked at beside other things: to import a library takes seconds
    if device.kind == "cuda" and memory != ALL and not short and elsewhere is None:
        late = [rung for rung in ladder if rung.vendor and device_of(rung, device) == device]
    lookout = ThreadPoolExecutor(1, "vendors")
    look = partial(lookout.map, lambda rung: _missing(rung, device, memory), late)
    # At once if there may be nothing to prove; else when proofs have begun, which is more urgent.
    looked_at = look() if kept is not None and kept.any else None
    rows = [
        row for rung in (*ladder, *guests)
        for row in ([Row(rung)] if rung in late else _rows(rung, device, memory))
    ]  # fmt: skip
    able = list({row.rung.label: row.rung for row in rows if row.missing is None}.values())
    able = [rung for rung in able if rung not in guests]
    proven = {}

    def meanwhile() -> dict[str, str | None]:
        for row in (each for each in rows if each.rung not in late):
            if row.missing is None and device_of(row.rung, device).kind == "cuda":
                with suppress(DoesNotFit, MissingForm):  # told in its turn
                    begin_convolutions(row.rung, network, device, batch, _plan(row, memory))
        missing = look() if looked_at is None else looked_at
        return {rung.label: reason for rung, reason in zip(late, missing, strict=True)}

    for row in _prove(able, device, network, size, short, progress, elsewhere, kept, meanwhile):
        proven[row.rung.label] = row
        audience.proven(row)
    rows = [
        replace(proven[row.rung.label], memory=row.memory)
        if row.missing is None and row.rung.label in proven else row
        for row in rows
    ]  # fmt: skip
    for row in plans:
        rows.append(_proven_plan(row, network, len(images), progress))
        audience.proven(rows[-1])
    contest = Contest(images, batch)
    for row in rows:
        if row.missing is None and (row.verdict is None or row.verdict.passed):
            progress(f"building {row.name}", 0, 1)
            if row.planned is not None:
                plan, used = row.planned.plan, row.planned.rungs
                contest.enter_plan(row.name, plan, used, network)
                continue
            on = device_of(row.rung, device)
            contest.enter(row.name, row.rung, network, on, _plan(row, memory))
    if not (description := contest.description(device)):
        there = [row for row in rows if device_of(row.rung, device) == device]
        raise TilewrightError(f"no rung can be timed: {_reasons(there) or 'there is none'}")
    seed, watch = secrets.randbits(32), Watch(device)
    contest.run(repeats, progress, audience.timed, seed, watch)
    conditions = watch.conditions()
    results = [replace(row, measured=contest.measured(row.name, network)) for row in rows]
    progress("measuring the device's peak", 0, 1)
    fastest = max((_executed_rate(row, network, len(images)) for row in results), default=0.0)
    known, problem = ceilings(device, description, at_least=fastest)
    notices = (problem,) if problem else ()
    doubt = 0.0 if device.kind == "cuda" else conditions.busy  # a GPU has its own processors
    return Ladder(
        description, known.flops, results, seed, conditions, notices, doubt, against, short
    )


def _prove(
    able: Sequence[Rung],
    device: Device,
    network: Network,
    batch: int,
    short: bool,
    progress: Progress,
    elsewhere: Elsewhere | None,
    kept: KeptProofs | None,
    meanwhile: Callable[[], Mapping[str, str | None]] = dict,
) -> Iterator[Row]:
    """Rungs with their verdicts, as they come. `meanwhile` is done when proofs have begun, and says
    what keeps some of them from running, after all."""
    # What is wrong with a user's file is told before minutes of others' proofs.
    mine, ours = ([r for r in able if (r.origin is None) == of_ours] for of_ours in (False, True))
    known = {} if kept is None else _known(ours, device, kept)
    rest = [rung for rung in ours if rung.label not in known]
    with _proofs(rest, device, network, batch, short, elsewhere, progress) as proofs:
        missing = meanwhile()
        order = as_they_come((*mine, *ours), proofs.begun)
        for index in range(len(able)):
            if waiting := sum(not future.done() for future in proofs.begun.values()):
                progress(f"proving side by side, {waiting} to go", index, len(able))
            rung = next(order)
            place, count = able.index(rung), itertools.count(1)

            def tell(name: str = rung.label, at: int = index, count: Iterator[int] = count) -> None:
                progress(f"proving {name}, trial {next(count)}", at, len(able))

            if (reason := missing.get(rung.label)) is not None:
                yield Row(rung, missing=reason, place=place)
                continue
            if rung.label not in proofs.begun:
                progress(f"proving {rung.label}", index, len(able))
            try:
                if (verdict := known.get(rung.label)) is None:
                    verdict = proofs.prove(rung, tell)
                    if kept is not None:
                        kept.keep(rung, device_of(rung, device), verdict)
                yield Row(rung, verdict=verdict, place=place)
            except (DoesNotFit, MissingForm, WorkerStopped) as error:
                yield Row(rung, missing=str(error), place=place)


def _known(able: Sequence[Rung], device: Device, kept: KeptProofs) -> dict[str, Verdict]:
    """What was found before of rungs, by their labels."""
    known: dict[str, Verdict] = {}
    for rung in able:
        with suppress(DoesNotFit, MissingForm):  # told in its turn
            if (verdict := kept.find(rung, device_of(rung, device))) is not None:
                known[rung.label] = verdict
    return known


def _proven_plan(row: Row, network: Network, images: int, progress: Progress) -> Row:
    assert row.planned is not None
    rungs, plan = list(row.planned.rungs.values()), row.planned.plan

    def tell(doing: str) -> None:
        progress(f"{row.name}: {doing}", 0, 1)

    return replace(row, verdict=prove_plan(rungs, network, plan, images, tell))


def _chosen(device: Device, names: Sequence[str]) -> list[Rung]:
    """The device's rungs in each of their precisions, or those that are named, in the ladder's
    order. On a GPU's ladder rungs of the CPU may be named, too: they are timed beside it.
    """
    known = [*rungs(device)] if not names or not device.is_gpu else [*rungs(CPU), *rungs(device)]
    every = [each.at(p.name) for each in known for p in each.precisions or (each.precision,)]
    every = list({each.label: each for each in every}.values())
    for name in names:
        if not any(name in (each.name, each.label) for each in every):
            raise not_among(every, device, name)
    return [each for each in every if not names or {each.name, each.label} & set(names)]


def _new(rung: Rung, network: Network, device: Device) -> bool:
    """Whether a rung's fast algorithm is chosen for any layer: else its row would be the direct
    sum's again."""
    if not rung.precisions or not isinstance(rung.precision.fast, tuple):
        return True
    if any(rung.supports(stage) for stage in network.stages):
        return False  # which the direct sum's row says
    on = device_of(rung, device)
    return any(
        rung.plan(on, stages, rung.precision) != rung.plan(on, stages, FLOAT32)
        for stages in rung.cut(network)
    )


def device_of(rung: Rung, device: Device) -> Device:
    """Where a rung runs on a device's ladder: there, or beside it on the CPU."""
    return device if device.kind in rung.devices or rung.origin else CPU


def _rows(rung: Rung, device: Device, memory: str | None) -> list[Row]:
    """One for each memory plan that it is to be timed under, with what keeps it from that."""
    on = device_of(rung, device)
    if on != device:
        return [Row(rung, missing=_missing(rung, on, None), memory=HOST)]
    if memory != ALL:
        return [Row(rung, missing=_missing(rung, on, memory))]
    return [Row(rung, missing=_missing(rung, on, plan), memory=plan) for plan in rung.memories]


def _plan(row: Row, memory: str | None) -> str | None:
    """The memory plan that a row is timed under; None: the rung's own."""
    if row.memory == HOST:
        return None
    return row.memory if memory == ALL else memory


def _reasons(rows: Sequence[Row]) -> str:
    """Why each could not be timed; those with the same reason together."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        why = str(row.missing or (row.verdict and row.verdict.fault))
        reasons.setdefault(why, []).append(row.name)
    return "; ".join(f"{', '.join(names)}: {why}" for why, names in reasons.items())


def with_own(ladder: Sequence[Rung], own: Sequence[Rung]) -> list[Rung]:
    """The ladder with rungs of a user's, each behind the one that it changes."""
    rungs = list(ladder)
    for rung in own:
        if same := next((each for each in rungs if each.label == rung.label), None):
            raise TilewrightError(
                f"{same.origin} and {rung.origin} are both named {rung.name!r}: names must differ"
            )
        place = next((i for i, each in enumerate(rungs) if each.vendor), len(rungs))
        for index, each in enumerate(rungs):
            if each.name == rung.against or (each.origin and each.against == rung.against):
                place = index + 1
        rungs.insert(place, rung)
    return rungs


def _proof(
    device: Device, network: Network, batch: int, short: bool, rung: Rung, tell: Callable[[], None]
) -> Verdict:
    given = verify_briefly if short else verify
    return given(in_worker(rung), device_of(rung, device), network, batch=batch, progress=tell)


def _proofs(
    able: Sequence[Rung],
    device: Device,
    network: Network,
    batch: int,
    short: bool,
    elsewhere: Elsewhere | None,
    progress: Progress,
) -> AbstractContextManager[Proofs]:
    """Side by side on a GPU; a CPU is busy enough with one."""
    here = partial(_proof, device, network, batch, short)
    many = [rung for rung in able if device_of(rung, device) == device]
    if elsewhere is not None:
        return elsewhere(many, here)
    if device.kind != "cuda" or len(many) < 2 or short or not cuda.takes_processes(device.index):
        return nullcontext(Proofs(here))
    asked = Asked(device, network, batch, fresh_seed())
    return _in_processes(many, asked, here, progress)


@contextmanager
def _in_processes(
    many: Sequence[Rung], asked: Asked, here: Proof, progress: Progress
) -> Iterator[Proofs]:
    """Proofs in other processes, which tell nothing before they are done; others are made here."""
    memory = cuda.device_limits(asked.device).memory_bytes
    wanted = sum(len(shares(rung, asked.network)) for rung in many)
    given = room(wanted, environment.cpu_cores(), memory, environment.memory_bytes())

    def first() -> None:
        progress("compiling what all rungs share", 0, len(many))
        compile_shared(many, asked.device, asked.network, asked.batch, asked.seed)

    with side_by_side(many, asked, given, first) as (prove, begun):
        yield Proofs(
            lambda rung, tell: prove(rung) if rung.label in begun else here(rung, tell), begun
        )


def _executed_rate(row: Row, network: Network, images: int) -> float:
    """FLOP a second that a rung of our own surely did in float32; of others' nobody knows."""
    if (
        row.ranked is None
        or row.memory == HOST
        or row.rung.vendor
        or row.rung.precision.name != FLOAT32.name
    ):
        return 0.0
    return images * row.rung.executed_flops(network) / row.ranked.median


def _missing(rung: Rung, device: Device, memory: str | None) -> str | None:
    if memory is not None and memory not in rung.memories:
        return f"it cannot work with --memory {memory}"
    if reason := rung.missing(device):
        return reason
    try:
        rung.open_runtime(device, memory or rung.memories[0])
    except TilewrightError as error:  # before minutes of verifying
        return str(error)
    return None
