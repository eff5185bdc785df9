"""The main job: a network over a data set on one rung, every phase recorded in one trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tilewright import environment
from tilewright.data import catalogue
from tilewright.data.dataset import Dataset, checked_labels
from tilewright.environment import Usage
from tilewright.errors import TilewrightError
from tilewright.execute import Program
from tilewright.memory import pin, pins
from tilewright.model.load import Net, Weights, describe, load_parameters
from tilewright.model.network import Network
from tilewright.plan import Plan, uniform
from tilewright.plan_file import read
from tilewright.results.record import Environment
from tilewright.rungs import DEFAULT_BATCH, choose, resolve, together
from tilewright.rungs.rung import Rung
from tilewright.runtime.device import CPU, Device
from tilewright.trace import Event, Trace, at_start, busy_seconds, starting
from tilewright.truth.before_run import prove_first
from tilewright.truth.verify import Verdict

WARM_UP_IMAGES = 10


@dataclass(frozen=True)
class Request:
    """What to run; None means the default."""

    net: Net = "ece408"
    weights: Weights | None = None
    data: catalogue.Source | None = None
    images: int | None = None
    batch: int = DEFAULT_BATCH
    device: Device = CPU
    rung: str | None = None
    memory: str | None = None
    precision: str | None = None
    check: bool = False  # prove the rung on the network's layers first; a kernel file always is
    plan: Path | None = None  # a file that has device, rung, memory, batch and precision
    repeats: int = 1  # of the forward pass


@dataclass(frozen=True)
class Ready:
    """Everything loaded and built: a program, and the images to send through it."""

    network: Network
    dataset: Dataset
    rung: Rung
    plan: Plan
    program: Program
    proof: Verdict | None = None


@dataclass(frozen=True)
class Result:
    """What a run gave. All times are in the trace."""

    network: Network
    dataset: Dataset
    rung: Rung
    plan: Plan
    device: str
    outputs: NDArray[np.float32]
    predicted: NDArray[np.int64]
    correct: int | None
    trace: Trace
    peak_memory_bytes: int
    environment: Environment
    proof: Verdict | None = None
    forward_samples: tuple[float, ...] = ()  # of every repeat; the trace has the last
    usage: Usage | None = None

    @property
    def accuracy(self) -> float | None:
        return None if self.correct is None else self.correct / len(self.dataset)


def run(
    request: Request,
    progress: Callable[[int, int], None] = lambda done, of: None,
    building: Callable[[int, int], None] = lambda done, of: None,
    proving: Callable[[str], None] = lambda doing: None,
) -> Result:
    """Do the job. `progress` is told the images done and how many there are, `building` the same of
    kernels, and `proving` what is tried before that, if anything is."""
    trace = Trace()
    ready = make_ready(request, trace, building, proving)
    program, dataset, total = ready.program, ready.dataset, len(ready.dataset)
    before = []
    if request.repeats > 1:
        with trace.phase("repeats"):
            for _ in range(request.repeats - 1):
                other = Trace()
                with other.phase("forward"):
                    program(dataset.images, other, lambda done: progress(done, total))
                before.append(other.phase_seconds("forward"))
    result = forward(ready, trace, progress)
    with trace.phase("free memory"):
        del program, ready
    samples = (*before, result.trace.phase_seconds("forward")) if before else ()
    return replace(result, forward_samples=samples, usage=environment.usage())


def forward(
    ready: Ready, trace: Trace, progress: Callable[[int, int], None] = lambda done, of: None
) -> Result:
    """The images through the program, and what that gave."""
    program, dataset, total = ready.program, ready.dataset, len(ready.dataset)
    with trace.phase("forward"):
        outputs = program(dataset.images, trace, lambda done: progress(done, total))
    with trace.phase("accuracy"):
        outputs = outputs.reshape(total, -1)
        check_finite(outputs, program, dataset)
        predicted = outputs.argmax(1)
        correct = None if dataset.labels is None else int((predicted == dataset.labels).sum())
    return Result(
        ready.network, dataset, ready.rung, ready.plan, program.runtime.describe(), outputs,
        predicted, correct, trace, environment.peak_memory_bytes(), environment.fingerprint(),
        ready.proof,
    )  # fmt: skip


def make_ready(
    request: Request,
    trace: Trace,
    building: Callable[[int, int], None] = lambda done, of: None,
    proving: Callable[[str], None] = lambda doing: None,
) -> Ready:
    """Load what is asked for, build it and warm it up, each a phase in the trace."""
    with trace.phase("open device"):
        rung = None if request.plan else choose(request.device, request.rung, request.precision)
    with trace.phase("create network"):
        network = describe(request.net)
        plan, rungs = planned(request, network, rung)
    with trace.phase("load parameters"):
        network = load_parameters(network, request.net, request.weights)
    with trace.phase("load data"):
        shape = network.input.shape
        source = request.data if request.data is not None else catalogue.default_for(shape)
        dataset = catalogue.open_data(source, shape, request.images)
        if dataset.labels is not None:
            classes = int(np.prod(network.output_shape))
            checked_labels(dataset.labels, classes, dataset.source)
    proof = None
    proven = [each for each in rungs.values() if request.check or each.origin is not None]
    if proven:
        with trace.phase("prove"):
            proof = prove_first(proven, network, plan, len(dataset), proving)
    with blaming(request.plan):
        program = _built(network, plan, rungs, building, trace)
    with trace.phase("create outputs"):
        program.create_outputs(len(dataset))
    if pins(program):
        with trace.phase("pin images"):
            dataset = replace(dataset, images=pin(program, dataset.images))
    with trace.phase("warm up"):
        program(dataset.images[: warm_up_images(plan)], at_start())
    return Ready(network, dataset, together(plan, rungs), plan, program, proof)


def warm_up_images(plan: Plan) -> int:
    """Few; on a CUDA GPU a batch, for there libraries and plans have other kernels for few."""
    return plan.batch if plan.device.kind == "cuda" else WARM_UP_IMAGES


def _built(
    network: Network,
    plan: Plan,
    rungs: dict[str, Rung],
    building: Callable[[int, int], None],
    trace: Trace,
) -> Program:
    """A program, and how long it took: to send weights to a device is a phase of its own."""
    started, begin = at_start(), trace.now()
    sent = started or Trace()
    with starting(sent):
        program = Program(network, plan, rungs, building)
        program.runtime.synchronise()
    program.runtime.trace = started
    end = trace.now()
    seconds = min(end - begin, busy_seconds(sent.of("copy")))
    trace.add(Event("phase", "build kernels", begin, end - seconds))
    if seconds:
        trace.add(Event("phase", "send weights", end - seconds, end))
    return program


def planned(request: Request, network: Network, rung: Rung | None) -> tuple[Plan, dict[str, Rung]]:
    """Every layer by a rung or, if there is none, as the plan in the file says; and its rungs."""
    if rung is not None:
        plan = uniform(network, rung, request.device, request.batch, request.memory)
        return plan, {rung.name: rung}
    assert request.plan is not None
    plan = read(request.plan, network)
    with blaming(request.plan):
        return plan, resolve(plan)


@contextmanager
def blaming(file: Path | None) -> Iterator[None]:
    """What a plan from a file asks for may be impossible: then the file is named."""
    try:
        yield
    except TilewrightError as error:
        if file is None:
            raise
        raise TilewrightError(f"{file}: {error}") from error


def check_finite(outputs: NDArray[np.float32], program: Program, dataset: Dataset) -> None:
    """Refuse a result with NaN or infinity in it, naming the first layer that made one."""
    wrong = np.flatnonzero(~np.isfinite(outputs).all(1))
    if not wrong.size:
        return
    image = dataset.images[wrong[0] : wrong[0] + 1]
    buffers = program.activations(program.runtime.upload(image))
    for step, buffer in zip(program.plan.steps, buffers, strict=True):
        if not np.isfinite(program.runtime.download(buffer)).all():
            raise TilewrightError(
                f"image {wrong[0]}: {step.layers[-1]} gives values that are not finite: "
                f"the weights are too large for {program.plan.precision}, or the kernel is wrong"
            )
    raise TilewrightError(
        f"image {wrong[0]}: the output is not finite, but was when computed again: "
        "the kernel is wrong"
    )
