"""The whole ladder in one go: every rung verified, then all of them timed in turns."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tilewright.data.catalogue import SAMPLE, Source, open_data
from tilewright.data.dataset import Dataset, checked_labels
from tilewright.errors import TilewrightError
from tilewright.execute import Program, program_of
from tilewright.judge import WorkerStopped
from tilewright.measure.conditions import Conditions, Watch
from tilewright.measure.samples import Rounds, Sample, interleave
from tilewright.memory import pin
from tilewright.model.layers import MissingForm, Pixels
from tilewright.model.load import Net, Weights, load
from tilewright.model.network import Network, Stage
from tilewright.precision import FLOAT32
from tilewright.profiling.ceilings import ceilings
from tilewright.results.ladder import ALONE, TOGETHER
from tilewright.rungs import rungs
from tilewright.rungs.rung import Rung
from tilewright.runtime import HostArray, cuda
from tilewright.runtime.device import Device
from tilewright.runtime.dialect import DoesNotFit
from tilewright.trace import Event, Trace
from tilewright.truth.before_run import in_worker
from tilewright.truth.side_by_side import Prove, side_by_side
from tilewright.truth.trials import random_parameters
from tilewright.truth.verify import Verdict, verify

# Called with what is being done, how much of it is done, and how much there is.
Progress = Callable[[str, int, int], None]
RANDOM_SEED = 1
SAMPLE_CLASSES = 10  # of the sample that ships, which networks of one channel are measured on
RECORDED = "recorded"  # a turn of its own, as recording disturbs the timing


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

    Time does not depend on values, so what is not here is drawn at random, and the note or the
    data set's source says so: weights where none are shipped, pixels where no data set is named.
    """
    network = load(net, weights)
    note = "trained weights" if network.parameters else "random weights"
    if not network.parameters:
        generator = np.random.default_rng(RANDOM_SEED)
        network = network.with_parameters(random_parameters(network, generator))
    shape = network.input.shape
    if data is None and shape[0] == 1 and math.prod(network.output_shape) >= SAMPLE_CLASSES:
        data = SAMPLE
    if data is not None:
        dataset = open_data(data, shape, None if or_all else images)
        dataset = dataset.first(min(images, len(dataset)))
        if dataset.labels is not None:
            checked_labels(dataset.labels, math.prod(network.output_shape), dataset.source)
        return Subject(network, dataset, note)
    pixels = np.random.default_rng(RANDOM_SEED).integers(0, 256, (images, *shape), np.uint8)
    return Subject(network, Dataset("random", pixels, None, "random pixels"), note)


@dataclass(frozen=True)
class Ladder:
    """Every rung's row, in the ladder's order; the device in words and its measured peak FLOP/s.

    `seed` is what the order of the turns was drawn from; `notices` say what is wrong with the peak.
    `doubt` is the share of the processors' time that was others': ratios are uncertain by it.
    """

    device: str
    peak: float | None
    rows: list[Row]
    seed: int
    conditions: Conditions
    notices: tuple[str, ...] = ()
    doubt: float = 0.0

    def changed(self, row: Row) -> Row | None:
        """The row that one of these is to be compared with."""
        return changed(row, self.rows)


@dataclass(frozen=True)
class Row:
    """A rung's place on the ladder. What could not be had is None, with the reason in `missing`.

    `operations` has the time of each convolution over all images. `operations_mark` says if these
    are not plainly the convolutions' own times: see `ALONE` and `TOGETHER`. `copies` is the time of
    all copies between host and device, which moved `copied_bytes`.
    """

    rung: Rung
    missing: str | None = None
    verdict: Verdict | None = None
    network: Sample | None = None
    operations: dict[str, Sample] = field(default_factory=dict)
    operations_mark: str = ""
    copies: Sample | None = None
    copied_bytes: int = 0
    predicted: NDArray[np.int64] | None = None


def changed(row: Row, rows: Sequence[Row]) -> Row | None:
    """The row that a rung is to be compared with: of the rung it changes, in the same precision
    where that one has a choice; None where there is none or it was not timed.
    """
    named = [other for other in rows if other.rung.name == row.rung.against and other.network]
    for other in named:
        if not other.rung.precisions or other.rung.precision == row.rung.precision:
            return other
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
) -> Ladder:
    """Verify and time every rung of a device's ladder on a network and some images.

    A rung that cannot run, or computes something wrong, has a row that says so and is not timed.
    `own` are rungs in files of a user's: each has its place behind the rung that it changes.
    `guests` are rungs that are not on the ladder: they are timed with the others, unverified.
    """
    ladder = with_own(
        [each.at(p.name) for each in rungs(device) for p in each.precisions or (each.precision,)],
        own,
    )
    rows = {r.label: Row(r, missing=_missing(r, device, memory)) for r in (*ladder, *guests)}
    able = [rung for rung in ladder if rows[rung.label].missing is None]
    # What is wrong with a user's file is told before minutes of others' proofs.
    mine, ours = ([r for r in able if (r.origin is None) == of_ours] for of_ours in (False, True))
    size = min(batch, len(images))  # the batch that is timed is tried, too
    with _proofs(ours, device, network, size) as prove:
        for index, rung in enumerate((*mine, *ours)):
            progress(f"verifying {rung.label}", index, len(able))
            try:
                if rung.origin is None:
                    verdict = prove(rung)
                else:
                    verdict = verify(in_worker(rung), device, network, batch=size)
                rows[rung.label] = Row(rung, verdict=verdict)
            except (DoesNotFit, MissingForm, WorkerStopped) as error:
                rows[rung.label] = Row(rung, missing=str(error))
    contest = _Contest(images, device, batch, memory)
    for name, row in rows.items():
        if row.missing is None and (row.verdict is None or row.verdict.passed):
            progress(f"building {name}", 0, 1)
            contest.enter(row.rung, network)
    reasons: dict[str, list[str]] = {}
    for name, row in rows.items():
        reason = str(row.missing or (row.verdict and row.verdict.fault))
        reasons.setdefault(reason, []).append(name)
    seed, watch = secrets.randbits(32), Watch(device)
    contest.run(repeats, reasons, progress, seed, watch)
    conditions = watch.conditions()
    results = [contest.results(row, network) for row in rows.values()]
    progress("measuring the device's peak", 0, 1)
    fastest = max((_executed_rate(row, network, len(images)) for row in results), default=0.0)
    found, problem = ceilings(device, contest.description, at_least=fastest)
    notices = (problem,) if problem else ()
    doubt = 0.0 if device.kind == "cuda" else conditions.busy  # a GPU has its own processors
    return Ladder(contest.description, found.flops, results, seed, conditions, notices, doubt)


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


def _proofs(
    able: Sequence[Rung], device: Device, network: Network, batch: int
) -> AbstractContextManager[Prove]:
    """Side by side on a GPU; a CPU is busy enough with one."""
    if device.kind == "cuda" and len(able) > 1 and cuda.takes_processes(device.index):
        return side_by_side(able, device, network, batch, sorted(os.sched_getaffinity(0)))
    return nullcontext(lambda rung: verify(rung, device, network, batch=batch))


def _executed_rate(row: Row, network: Network, images: int) -> float:
    """FLOP a second that a rung of our own surely did in float32; of others' nobody knows."""
    if row.network is None or row.rung.vendor or row.rung.precision.name != FLOAT32.name:
        return 0.0
    return images * row.rung.executed_flops(network) / row.network.median


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


def alone(network: Network, stage: Stage) -> Network:
    """One layer as a network of its own, with its weights; values enter it as they are."""
    made = Network(stage.name, Pixels(stage.input_shape), (stage.layer,))
    given = [network.parameters[name] for name in stage.parameter_shapes]
    return made.with_parameters(dict(zip(made.parameter_shapes, given, strict=True)))


class _Contest:
    """Programs that take turns over the same images.

    A subject is a rung's whole network, (rung, ""), one of its convolutions alone, or, where
    recording slows a run down, the whole network once more, (rung, RECORDED).
    """

    def __init__(self, images: HostArray, device: Device, batch: int, memory: str | None) -> None:
        self.images, self.device, self.batch, self.memory = images, device, batch, memory
        self.description = ""
        self.subjects: dict[tuple[str, str], Callable[[], Trace]] = {}
        self.traces: dict[tuple[str, str], list[Trace]] = {}
        self.outputs: dict[str, NDArray[np.float32]] = {}
        self.samples: dict[tuple[str, str], Sample] = {}

    def enter(self, rung: Rung, network: Network) -> None:
        """Enter a rung: the whole network and, if it shows no single layers, each convolution."""
        program = self._program(rung, network)
        self.images = pin(program, self.images)
        self.description = program.runtime.describe()
        disturbs = program.runtime.recording_disturbs

        def turn(recorded: bool = not disturbs) -> Trace:
            trace = Trace()
            self.outputs[rung.label] = program(self.images, trace if recorded else None)
            return trace

        self.subjects[rung.label, ""] = turn
        if disturbs:
            self.subjects[rung.label, RECORDED] = partial(turn, recorded=True)
        probe = Trace()
        program(self.images[:1], probe)
        for stage in network.stages:
            if stage.kind == "conv" and not _computing(probe, stage.name, network):
                self.subjects[rung.label, stage.name] = self._alone(rung, network, stage)

    def _program(self, rung: Rung, network: Network) -> Program:
        return program_of(network, rung, self.device, self.batch, self.memory)

    def _alone(self, rung: Rung, network: Network, stage: Stage) -> Callable[[], Trace]:
        """One convolution of the network as a network of its own, on as many images.

        Values do not change the time: one batch of them lies on the device and goes through as
        often as needed.
        """
        program = self._program(rung, alone(network, stage))
        size = min(self.batch, len(self.images))
        values = np.random.default_rng(RANDOM_SEED).normal(size=(size, *stage.input_shape))
        x = program.runtime.upload(values.astype(np.float32))
        out = program.runtime.allocate((size, *stage.output_shape))
        program.create_outputs(size)
        full, rest = divmod(len(self.images), size)

        def turn() -> Trace:
            program.runtime.trace = trace = Trace()
            for _ in range(full):
                program.into(x, out)
            if rest:
                program.into(x[:rest], out[:rest])
            program.runtime.synchronise()
            return trace

        return turn

    def run(
        self,
        repeats: int | Rounds,
        reasons: dict[str, list[str]],
        progress: Progress,
        seed: int,
        watch: Watch,
    ) -> None:
        if not self.subjects:
            words = "; ".join(f"{', '.join(names)}: {why}" for why, names in reasons.items())
            raise TilewrightError(f"no rung can be timed: {words or 'there is none'}")
        least = repeats if isinstance(repeats, int) else repeats.least
        done, total = 0, len(self.subjects) * (least + 1)

        def step(subject: tuple[str, str]) -> None:
            nonlocal done
            done += 1
            more = "" if done <= total else ", until it is certain"
            progress(f"timing {subject[0]}{more}", done, max(done, total))

        def collect(subject: tuple[str, str], trace: Trace) -> None:
            if trace.events:
                layer = subject[1].removeprefix(RECORDED)
                self.traces.setdefault((subject[0], layer), []).append(trace)

        self.samples = interleave(
            self.subjects, repeats, collect=collect, progress=step, seed=seed, between=watch,
            decisive=lambda subject: subject[1] == "",
        )  # fmt: skip

    def results(self, row: Row, network: Network) -> Row:
        """The row with what was measured; as it was, if the rung did not take part."""
        name = row.rung.label
        if (name, "") not in self.samples:
            return row
        convolutions = [stage.name for stage in network.stages if stage.kind == "conv"]
        operations = {layer: self._operation(name, layer, network) for layer in convolutions}
        copies = [trace.of("copy") for trace in self.traces[name, ""]]
        return replace(
            row,
            network=self.samples[name, ""],
            operations=operations,
            operations_mark=self._mark(name, convolutions, network),
            copies=_sample(copies) if copies[0] else None,
            copied_bytes=sum(event.bytes for event in copies[0]),
            predicted=self.outputs[name].reshape(len(self.images), -1).argmax(1),
        )

    def _operation(self, name: str, layer: str, network: Network) -> Sample:
        """A convolution's time over all images, from the kernels in the traces of counted turns."""
        if alone := self.traces.get((name, layer)):
            return _sample([trace.of("kernel") for trace in alone])
        return _sample([_computing(t, layer, network) for t in self.traces[name, ""]])

    def _mark(self, name: str, convolutions: list[str], network: Network) -> str:
        if any((name, layer) in self.samples for layer in convolutions):
            return ALONE
        first = self.traces[name, ""][0]
        events = [event for layer in convolutions for event in _computing(first, layer, network)]
        return TOGETHER if any(len(event.layers) > 1 for event in events) else ""


def _sample(turns: list[list[Event]]) -> Sample:
    """The time of some events in each turn."""
    return Sample(tuple(sum(event.seconds for event in events) for events in turns))


def _computing(trace: Trace, layer: str, network: Network) -> list[Event]:
    """The kernels that compute a layer and no other layer with weights."""
    weighted = {stage.name for stage in network.stages if stage.parameter_shapes}
    return [e for e in trace.of("kernel") if weighted.intersection(e.layers) == {layer}]
