"""Programs that take turns over the same images, and what their traces say of each layer."""

from __future__ import annotations

import resource
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tilewright.execute import Program, begin_to_compile, program_of
from tilewright.measure.conditions import Watch
from tilewright.measure.samples import Rounds, Sample, interleave, pause_before
from tilewright.memory import pin, pins
from tilewright.model.layers import Pixels
from tilewright.model.network import Network, Stage
from tilewright.plan import Plan
from tilewright.results.ladder import ALONE, TOGETHER
from tilewright.rungs.rung import Rung
from tilewright.runtime import HostArray
from tilewright.runtime.device import Device
from tilewright.runtime.head_start import HeadStart
from tilewright.trace import Event, Trace, busy_seconds

# Called with what is being done, how much of it is done, and how much there is.
Progress = Callable[[str, int, int], None]
# Called with a name and the seconds of one of its turns.
Timed = Callable[[str, float], None]
RANDOM_SEED = 1
RECORDED = "recorded"  # a turn of its own, as recording disturbs the timing


@dataclass(frozen=True)
class Measured:
    """What one of a contest's programs came to, over all images.

    `device` is the time in which a GPU computed, without copies and without waiting for the host;
    None on a CPU. `layers` are kernel times by the layers that were computed together.
    `operations_mark` says if `operations` are not plainly the convolutions' own times: see `ALONE`
    and `TOGETHER`. `page_faults` are those that the host's system served in a median turn.
    """

    network: Sample
    operations: dict[str, Sample]
    operations_mark: str
    device: Sample | None
    copies: Sample | None
    copied_bytes: int
    predicted: NDArray[np.int64]
    layers: dict[tuple[str, ...], Sample] = field(default_factory=dict)
    page_faults: int = 0


def alone(network: Network, stage: Stage) -> Network:
    """One layer as a network of its own, with its weights; values enter it as they are."""
    made = Network(stage.name, Pixels(stage.input_shape), (stage.layer,))
    given = [network.parameters[name] for name in stage.parameter_shapes]
    return made.with_parameters(dict(zip(made.parameter_shapes, given, strict=True)))


def begin_convolutions(
    rung: Rung, network: Network, device: Device, batch: int, memory: str | None
) -> None:
    """Have convolutions compiled that a rung will be asked for alone: its proof compiles the rest.

    Those of several layers with weights that are computed at once.
    """
    for part in rung.cut(network):
        if sum(bool(stage.parameter_shapes) for stage in part) > 1:
            for stage in (each for each in part if each.kind == "conv"):
                single = alone(network, stage)
                begin_to_compile(single, rung, device, batch, memory, pixels=False)


class Contest:
    """A subject is a program's whole network, (name, ""), one of its convolutions alone, or, where
    recording slows a run down, the whole network once more, (name, RECORDED).
    """

    def __init__(self, images: HostArray, batch: int) -> None:
        self.images, self.batch = images, batch
        self.pinned = images  # for those that send them from there
        self.programs: dict[str, Program] = {}
        self.subjects: dict[tuple[str, str], Callable[[], Trace]] = {}
        self.traces: dict[tuple[str, str], list[Trace]] = {}
        self.faults: dict[str, list[int]] = {}
        self.outputs: dict[str, NDArray[np.float32]] = {}
        self.samples: dict[tuple[str, str], Sample] = {}

    def description(self, device: Device) -> str:
        """The device in words, by the first program that runs on it."""
        found = (each for each in self.programs.values() if each.plan.device == device)
        program = next(found, None)
        return "" if program is None else program.runtime.describe()

    def enter(
        self, name: str, rung: Rung, network: Network, device: Device, memory: str | None
    ) -> None:
        """Enter a rung: the whole network and, if it shows no single layers, each convolution."""
        program = program_of(network, rung, device, self.batch, memory)
        self._enter(name, program, {stage.name: rung for stage in network.stages})

    def enter_plan(
        self, name: str, plan: Plan, rungs: Mapping[str, Rung], network: Network
    ) -> None:
        """Enter what a plan has chosen."""
        by_layer = {layer: rungs[step.rung] for step in plan.steps for layer in step.layers}
        self._enter(name, Program(network, plan, dict(rungs)), by_layer)

    def _enter(self, name: str, program: Program, rungs: Mapping[str, Rung]) -> None:
        images = self.images
        if pins(program):
            images = self.pinned = pin(program, self.pinned)
        self.programs[name] = program
        disturbs, head_start = program.runtime.recording_disturbs, HeadStart(program.runtime)

        def turn(recorded: bool = not disturbs) -> Trace:
            trace = Trace()
            before = _page_faults()
            with head_start.given() if recorded else nullcontext():
                self.outputs[name] = program(images, trace if recorded else None)
            self.faults.setdefault(name, []).append(_page_faults() - before)
            return trace

        self.subjects[name, ""] = turn
        if disturbs:
            self.subjects[name, RECORDED] = partial(turn, recorded=True)
        probe, network = Trace(), program.network
        program(images[: self.batch], probe)  # few images may have kernels of their own
        for stage in network.stages:
            if stage.kind == "conv" and not _computing(probe, stage.name, network):
                rung, plan = rungs[stage.name], program.plan
                single = program_of(
                    alone(network, stage), rung, plan.device, self.batch, plan.memory, pixels=False
                )
                self.subjects[name, stage.name] = self._alone(single, stage)

    def _alone(self, program: Program, stage: Stage) -> Callable[[], Trace]:
        """One convolution of the network as a network of its own, on as many images.

        Values do not change the time: one batch of them lies on the device and goes through as
        often as needed.
        """
        size = min(self.batch, len(self.images))
        values = np.random.default_rng(RANDOM_SEED).normal(size=(size, *stage.input_shape))
        x = program.runtime.upload(values.astype(np.float32))
        out = program.runtime.allocate((size, *stage.output_shape))
        program.create_outputs(size)
        full, rest = divmod(len(self.images), size)
        head_start = HeadStart(program.runtime)

        def turn() -> Trace:
            program.runtime.trace = trace = Trace()
            with head_start.given():
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
        progress: Progress,
        timed: Timed,
        seed: int,
        watch: Watch,
    ) -> None:
        """All subjects in turns. What `timed` is told is a GPU's own time, where there is one."""
        least = repeats if isinstance(repeats, int) else repeats.least
        done, total = 0, len(self.subjects) * (least + 1)

        def step(subject: tuple[str, str]) -> None:
            nonlocal done
            done += 1
            more = "" if done <= total else ", until it is certain"
            progress(f"timing {subject[0]}{more}", done, max(done, total))

        def collect(subject: tuple[str, str], trace: Trace) -> None:
            name, layer = subject[0], subject[1].removeprefix(RECORDED)
            if trace.events:
                self.traces.setdefault((name, layer), []).append(trace)
                if not layer:
                    timed(name, busy_seconds(trace.of("kernel")))

        self.samples = interleave(
            self.subjects, repeats, collect=collect, progress=step, seed=seed, between=watch,
            decisive=self._ranked, judged_by=self._seconds, by_host=lambda subject: not subject[1],
            pause=pause_before(program.plan.device for program in self.programs.values()),
        )  # fmt: skip

    def _ranked(self, subject: tuple[str, str]) -> bool:
        """Whether a program is compared by these turns: of a whole network, and recorded."""
        name, part = subject
        return part == (RECORDED if (name, RECORDED) in self.subjects else "")

    def _seconds(self, subject: tuple[str, str], trace: Trace, seconds: float) -> float:
        """What programs are compared by: a GPU's own time, where there is one."""
        on_gpu = self.programs[subject[0]].plan.device.is_gpu
        return (busy_seconds(trace.of("kernel")) if on_gpu else 0.0) or seconds

    def measured(self, name: str, network: Network) -> Measured | None:
        """Of a program; None if it did not take part."""
        if (name, "") not in self.samples:
            return None
        traces, on_gpu = self.traces[name, ""], self.programs[name].plan.device.is_gpu
        convolutions = [stage.name for stage in network.stages if stage.kind == "conv"]
        copies = [trace.of("copy") for trace in traces]
        kernels = [trace.of("kernel", "host") for trace in traces]
        together = {event.layers: None for events in kernels for event in events}
        return Measured(
            network=self.samples[name, ""],
            operations={layer: self._operation(name, layer, network) for layer in convolutions},
            operations_mark=self._mark(name, convolutions, network),
            device=_on_device(traces) if on_gpu else None,
            copies=_sample(copies) if copies[0] else None,
            copied_bytes=sum(event.bytes for event in copies[0]),
            predicted=self.outputs[name].reshape(len(self.images), -1).argmax(1),
            layers={
                layers: _sample([[e for e in events if e.layers == layers] for events in kernels])
                for layers in together
            },
            page_faults=int(np.median(self.faults[name])),
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


def _page_faults() -> int:
    """Of this process so far: pages that the system had to find, or to bring from a device."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_minflt + used.ru_majflt


def _on_device(traces: list[Trace]) -> Sample | None:
    """The time in which kernels ran, what overlaps counted once; None if none was recorded."""
    seconds = tuple(busy_seconds(trace.of("kernel")) for trace in traces)
    return Sample(seconds) if all(seconds) else None


def _sample(turns: list[list[Event]]) -> Sample:
    """The time of some events in each turn."""
    return Sample(tuple(sum(event.seconds for event in events) for events in turns))


def _computing(trace: Trace, layer: str, network: Network) -> list[Event]:
    """The kernels that compute a layer and no other layer with weights."""
    weighted = {stage.name for stage in network.stages if stage.parameter_shapes}
    return [e for e in trace.of("kernel") if weighted.intersection(e.layers) == {layer}]
