"""Memory plans: how images, activations and results travel between host and device.

- `host`: there is no other memory (the CPU rungs).
- `managed`: one address space; host and device touch the same pages, which move by themselves.
- `per-layer`: around every layer its input and its parameters, as the rung has packed them, are
  copied in and its output out.
- `resident`: parameters, images and results stay on the device; two copies for the whole set,
  from and to pinned memory.
- `streamed`: images go in and results come out batch by batch through pinned memory, while
  other batches are computed.

Bytes travel as bytes and are normalised on the device in `resident` and `streamed`; in `managed`
and `per-layer` the host does that first, as in a program ported loop by loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tilewright.model.layers import Shape
from tilewright.model.pixels import normalise
from tilewright.rungs.rung import ParametersAgain
from tilewright.runtime import GpuRuntime, HostArray, Mark, Pins
from tilewright.runtime.staging import copy
from tilewright.trace import Event, moving, reaching

if TYPE_CHECKING:
    from tilewright.execute import Program

Images = HostArray
Results = NDArray[np.float32]
Progress = Callable[[int], None]
IMAGES, RESULTS = "images", "results"  # the arrays that travel, by their names
# Images of a data set that a device works on while the next are on their way.
SLOTS = 3
# Bytes of images that are pinned: memory that the system can give to nobody else meanwhile.
MOST_PINNED = 4 * 2**30


def host(program: Program, images: Images, results: Results, progress: Progress) -> None:
    """Batch by batch, from the caller's memory into the caller's memory."""
    for batch in _batches(program, images):
        program.into(images[batch], results[batch])
        progress(batch.stop)


def resident(program: Program, images: Images, results: Results, progress: Progress) -> None:
    """All images in, all batches, all results out."""
    runtime = program.runtime
    with moving(runtime.trace, IMAGES):
        given = runtime.upload(np.ascontiguousarray(images))
    kept = runtime.allocate(results.shape)
    for batch in _batches(program, images):
        program.into(given[batch], kept[batch])
        progress(batch.stop)
    with moving(runtime.trace, RESULTS):
        results[:] = runtime.download(kept)


def managed(program: Program, images: Images, results: Results, progress: Progress) -> None:
    """The host writes pixels where the device reads them, and reads what the device wrote."""
    runtime = program.gpu
    most = min(program.plan.batch, len(images))
    given = runtime.allocate((most, *images.shape[1:]))
    kept = runtime.allocate((most, *results.shape[1:]))
    for batch in _batches(program, images):
        values = _on_host(program, images[batch])
        with moving(runtime.trace, IMAGES):
            runtime.write(given[: len(values)], values)
        program.into(given[: len(values)], kept[: len(values)])
        with moving(runtime.trace, RESULTS):
            results[batch] = runtime.download(kept[: len(values)])
        progress(batch.stop)


def per_layer(program: Program, images: Images, results: Results, progress: Progress) -> None:
    """Every layer on its own: its input and parameters in, its output out."""
    runtime = program.runtime
    for batch in _batches(program, images):
        values = _on_host(program, images[batch])
        made: dict[str, NDArray[np.float32]] = {}
        for step, output in zip(program.steps, program.outputs, strict=True):
            values, *others = (made[name] for name in step.takes) if step.takes else (values,)
            if step.launch is None:
                values = values.reshape(len(values), *step.shape)
            elif not step.only_input:
                with reaching(runtime.trace, step.layers):
                    assert output is not None and isinstance(step.launch, ParametersAgain)
                    step.launch.send_parameters()
                    out = output[: len(values)]
                    with moving(runtime.trace, f"{step.layers[0]}.input"):
                        given = [runtime.upload(np.ascontiguousarray(x)) for x in (values, *others)]
                    step.launch(given[0], out, *given[1:])
                    with moving(runtime.trace, f"{step.layers[-1]}.output"):
                        values = runtime.download(out)
            made[step.layers[-1]] = values
        results[batch] = values.reshape(len(values), *results.shape[1:])
        progress(batch.stop)


def streamed(program: Program, images: Images, results: Results, progress: Progress) -> None:
    """A few batches in flight: one is computed while the next goes in and the last comes out."""
    runtime = program.gpu
    most = min(program.plan.batch, len(images))
    # Images in pinned memory go straight from there; others are copied into some first.
    straight = _can_go_straight(runtime, images)
    given, kept = (most, *images.shape[1:]), (most, *results.shape[1:])
    slots = [_Slot(runtime, given, images.dtype, kept, straight) for _ in range(SLOTS)]
    for index, batch in enumerate(_batches(program, images)):
        slot = slots[index % SLOTS]
        slot.collect(runtime, results)
        size = batch.stop - batch.start
        source = images[batch]
        if slot.pinned_in is not None:
            copy(slot.pinned_in[:size], source)
            source = slot.pinned_in[:size]
        with moving(runtime.trace, IMAGES):
            slot.sent = runtime.send(slot.given[:size], source, slot.computed)
        runtime.hold(slot.sent)
        program.into(slot.given[:size], slot.kept[:size])
        slot.computed = runtime.mark()
        with moving(runtime.trace, RESULTS):
            slot.fetched = runtime.fetch(slot.pinned_out[:size], slot.kept[:size], slot.computed)
        slot.batch = batch
        progress(batch.stop)
    for slot in slots:
        slot.collect(runtime, results)


def pin(program: Program, images: Images) -> Images:
    """The images where `resident` and `streamed` send them from without copying them first.

    Done before the clock starts, wherever a plan is timed. Other plans have them as they are, and
    so have all where there are too many: they go through a few pinned pieces.
    """
    runtime = program.runtime
    if not pins(program) or images.nbytes > MOST_PINNED:
        return images
    assert isinstance(runtime, Pins)
    if _can_go_straight(runtime, images):
        return images
    pinned = runtime.pinned(images.shape, images.dtype)
    copy(pinned, images)
    return pinned


def pins(program: Program) -> bool:
    """Whether images are sent from pinned memory, if there is room; a library's are, too."""
    travels = program.plan.device.is_gpu and program.plan.memory in ("resident", "streamed")
    return travels and isinstance(program.runtime, Pins)


def _can_go_straight(runtime: Pins, images: Images) -> bool:
    return bool(images.flags.c_contiguous and runtime.is_pinned(images))


class _Slot:
    """The buffers of one batch in flight, on both sides, and how far it has come."""

    def __init__(
        self, runtime: GpuRuntime, given: Shape, dtype: DTypeLike, kept: Shape, straight: bool
    ) -> None:
        self.pinned_in = None if straight else runtime.pinned(given, dtype)
        self.pinned_out = runtime.pinned(kept, "f4")
        self.given, self.kept = runtime.allocate(given, dtype), runtime.allocate(kept)
        # Kept until the slot is free again: OpenCL's mark of a copy, let go, waits for its end.
        self.sent: Mark | None = None
        self.computed: Mark | None = None
        self.fetched: Mark | None = None
        self.batch = slice(0, 0)

    def collect(self, runtime: GpuRuntime, results: Results) -> None:
        """Wait until the batch is back, and take its results."""
        if self.fetched is not None:
            runtime.wait(self.fetched)
            copy(results[self.batch], self.pinned_out[: self.batch.stop - self.batch.start])


FLOWS = {
    "host": host,
    "resident": resident,
    "streamed": streamed,
    "per-layer": per_layer,
    "managed": managed,
}
# Where a device has memory of its own; the first is what is meant if none is named.
DEVICE_PLANS = tuple(plan for plan in FLOWS if plan != "host")


def _batches(program: Program, images: Images) -> Iterator[slice]:
    size = program.plan.batch
    for first in range(0, len(images), size):
        yield slice(first, min(first + size, len(images)))


def _on_host(program: Program, pixels: Images) -> NDArray[np.float32]:
    """A batch as the network's values, made by the host; recorded as the input layer."""
    if pixels.dtype == np.float32:
        return pixels
    values = np.empty(pixels.shape, np.float32)
    trace, layers = program.runtime.trace, (program.network.stages[0].name,)
    with reaching(trace, layers):
        start = trace.now() if trace else 0.0
        normalise(program.network.input)(pixels, values)
        if trace:
            trace.add(Event("host", "host_normalise", start, trace.now(), layers))
    return values
