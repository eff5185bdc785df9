"""A network's kernels on a GPU, as something that can be called on batches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike

from tilewright.fuse.cuda.arithmetic import ARITHMETICS, Words
from tilewright.fuse.cuda.choice import Choice, Few
from tilewright.fuse.cuda.cut import Kernel, build, few_of, sources
from tilewright.fuse.cuda.dense import Dense
from tilewright.fuse.cuda.emit_dense import dense_text
from tilewright.fuse.cuda.emit_panels import panels_text
from tilewright.fuse.cuda.emit_passing import passing_text
from tilewright.fuse.cuda.emit_patches import patches_text
from tilewright.fuse.cuda.emit_stack import stack_text
from tilewright.fuse.cuda.emit_tiles import tiles_text
from tilewright.fuse.cuda.panels import Panels, in_whole_panels
from tilewright.fuse.cuda.panels_ways import How, Into
from tilewright.fuse.cuda.passing import Passing
from tilewright.fuse.cuda.patches import Patches
from tilewright.fuse.cuda.stack import Source, Stack
from tilewright.fuse.cuda.tiles import Tiles
from tilewright.model.layers import Layer, Pixels, Shape
from tilewright.model.network import Parameters, Stages
from tilewright.runtime import Buffer, GpuKernel, HostArray, are_pixels
from tilewright.runtime.dialect import LARGEST_GRID, Grid, Limits
from tilewright.runtime.gather import reads
from tilewright.trace import Cost

# Features between kernels take at most so many bytes; larger batches go through in pieces.
SCRATCH_BYTES = 4 * 10**9
# The same for what a grid's second axis holds, where blocks in panels take 16 images at least.
MOST_IN_PANELS = 16 * LARGEST_GRID[1]


def kernel_name(rung: str, precision: str, plan: Kernel, alone: bool) -> str:
    """What profiles show: the rung, its precision and, if it is one of several, its layers."""
    name = f"{rung}_{precision}"
    if not alone:
        names = plan.names or ("input",)
        name += f"_{names[0]}" + (f"_to_{names[-1]}" if len(names) > 1 else "")
    return re.sub(r"\W", "_", name)


def kernel_text(
    plan: Kernel, name: str, first: Layer, source: Source, how: How | None = None
) -> str:
    """What the compiler gets; `first` is the first layer of all, `source` what is read, and `how`
    which of a plan's kernels it is where there are several, if not the usual one."""
    pixels = first if isinstance(first, Pixels) else None
    if isinstance(plan, Panels):
        return panels_text(plan, how or plan.usual, name, pixels, source)
    if isinstance(plan, Dense):
        return dense_text(plan, name)
    if isinstance(plan, Tiles):
        return tiles_text(plan, name, pixels, source)
    if isinstance(plan, Patches):
        return patches_text(plan, name)
    if isinstance(plan, Passing):
        return passing_text(plan, name, pixels, source)
    return stack_text(plan, name, pixels, source)


class Launcher(Protocol):
    """What it needs of a CUDA runtime."""

    @property
    def limits(self) -> Limits: ...

    @property
    def capability(self) -> int: ...

    def allocate(self, shape: Shape, dtype: DTypeLike = np.float32) -> Any: ...

    def upload(self, array: HostArray) -> Any: ...

    def write(self, buffer: Buffer, array: HostArray) -> None: ...

    def compile_text(self, name: str, text: str, threads: int, shared_bytes: int) -> GpuKernel: ...

    def enqueue(
        self,
        kernel: GpuKernel,
        grid: Grid,
        arguments: Sequence[Any],
        layers: tuple[str, ...],
        cost: Cost | None = None,
    ) -> None: ...


@dataclass
class FusedNetwork:
    """Consecutive layers in few kernels, as they were chosen; their names begin with the rung's.

    There are kernels for many images, and may be others for few. They are compiled when it is
    called, for the type of images that comes, or before that when it is told what will come
    (`compile_for`).
    """

    runtime: Launcher
    rung: str
    precision: str
    stages: Stages
    parameters: Parameters
    choice: Choice
    # By what they are for: those with the weights, for all, and those with memory to work in.
    made: dict[Few | None, Series] = field(init=False, default_factory=dict)
    series: dict[Few | None, Series] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for few in (None, *self.choice.few):  # what was not chosen for these layers is refused now
            self._kernels(few)

    def _kernels(self, few: Few | None) -> list[Kernel]:
        arithmetic, capability = ARITHMETICS[self.precision], self.runtime.capability
        return build(self.stages, arithmetic, capability, self.choice, few)

    @property
    def plans(self) -> list[Kernel]:
        """Those for many images."""
        return self._kernels(None)

    def series_of(self, images: int) -> Series:
        """The kernels for so many images; made when they are first needed."""
        few = few_of(self.choice, images)
        if few not in self.series:
            self.series[few] = self._with_weights(few).beside(self.runtime)
        return self.series[few]

    def _with_weights(self, few: Few | None) -> Series:
        if few not in self.made:
            self.made[few] = Series(
                self.runtime, self.rung, self.precision, self.stages, self.parameters, self.choice,
                few,
            )  # fmt: skip
        return self.made[few]

    def beside(self, runtime: Launcher) -> FusedNetwork:
        """The same kernels and weights with memory of its own to work in, for calls that overlap.

        It launches through a runtime that may be another one for the same device.
        """
        self._with_weights(few_of(self.choice, 1))  # which every caller may come with
        other = copy(self)
        other.runtime, other.series = runtime, {}
        return other

    def compile_for(self, pixels: bool, images: int) -> None:
        """Compile what so many images need that are pixels, or float32 values."""
        self.series_of(images).compile_for(pixels, images)

    def send_parameters(self) -> None:
        for each in self.series.values():
            each.send_parameters()

    def __call__(self, x: Buffer, out: Buffer, *others: Buffer) -> None:
        self.series_of(len(x))(x, out)


@dataclass
class Series:
    """The kernels for batches of some size, one after the other, and what they work in.

    They are those for `few` images, or for many.
    """

    runtime: Launcher
    rung: str
    precision: str
    stages: Stages
    parameters: Parameters
    choice: Choice
    few: Few | None
    plans: list[Kernel] = field(init=False)
    sent: list[tuple[Buffer, Words]] = field(init=False)
    weights: list[Buffer | None] = field(init=False)
    tables: list[Buffer | None] = field(init=False)
    compiled: dict[tuple[int, Source], GpuKernel] = field(init=False, default_factory=dict)
    # By how they work, where that depends on the number of images.
    ways: dict[tuple[int, Source, How], GpuKernel] = field(init=False, default_factory=dict)
    # Room for what passes from kernel to kernel, for rows made into panels, and for the parts of
    # sums that blocks share.
    scratch: list[Buffer] = field(init=False, default_factory=list)
    rows: dict[int, Buffer] = field(init=False, default_factory=dict)
    parts: Buffer | None = field(init=False, default=None)
    arrived: Buffer | None = field(init=False, default=None)
    capacity: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        runtime = self.runtime
        arithmetic = ARITHMETICS[self.precision]
        self.plans = build(self.stages, arithmetic, runtime.capability, self.choice, self.few)
        self.sent, self.weights, self.tables = [], [], []
        for plan in self.plans if reads(runtime) else ():
            words = plan.parameters(self.parameters)
            held = runtime.upload(words) if words.size else None
            self.weights.append(held)
            if held is not None:
                self.sent.append((held, words))
            self.tables.append(runtime.upload(plan.tables[0]) if isinstance(plan, Stack) else None)

    def beside(self, runtime: Launcher) -> Series:
        """The same with memory of its own to work in."""
        other = copy(self)
        other.runtime, other.scratch, other.rows, other.capacity = runtime, [], {}, 0
        most = [plan.part_floats for plan in self.plans if isinstance(plan, Dense | Tiles)]
        processors = runtime.limits.processors
        other.parts = runtime.allocate((max(most) * processors,)) if most else None
        other.arrived = runtime.upload(np.zeros(processors, np.int32)) if most else None
        return other

    def compile_for(self, pixels: bool, images: int) -> None:
        """Compile what so many images need that are pixels, or float32 values."""
        for index, source in enumerate(sources(self.plans, "uint8" if pixels else "float32")):
            plan = self.plans[index]
            if isinstance(plan, Panels):
                for how, read in self._ways(plan, source, images):
                    self._way(index, plan, read, how)
            else:
                self._kernel(index, source)

    def send_parameters(self) -> None:
        for buffer, words in self.sent:
            self.runtime.write(buffer, words)

    def __call__(self, x: Buffer, out: Buffer) -> None:
        most = self.most
        for first in range(0, len(x), most):
            self._piece(x[first : first + most], out[first : first + most])

    @property
    def most(self) -> int:
        """Images that go through in one piece."""
        between = sum(4 * plan.result_words for plan in self.plans[:-1])
        most = max(1, SCRATCH_BYTES // between) if between else 2**31 - 1
        panels = any(isinstance(plan, Panels) for plan in self.plans)
        return min(most, MOST_IN_PANELS) if panels else most

    def _piece(self, x: Buffer, out: Buffer) -> None:
        images = len(x)
        if images > self.capacity:
            # Zeros: the words after an image's last feature meet weights of zero, not NaN.
            self.capacity = max(images, self.few.images if self.few else 0)
            self.scratch = [
                self._zeros(
                    in_whole_panels(self.capacity) if plan.gives == "panels" else self.capacity,
                    plan.result_words,
                )
                for plan in self.plans[:-1]
            ]
            self.rows = {
                index: self._zeros(in_whole_panels(self.capacity), plan.words)
                for index, plan in enumerate(self.plans)
                if isinstance(plan, Panels) and plan.given != "panels"
            }
        read = sources(self.plans, "uint8" if are_pixels(x) else "float32")
        made = {-1: x}  # by the operation that gave it
        for index, plan in enumerate(self.plans):
            target = self.scratch[index] if index + 1 < len(self.plans) else out
            taken = [made[each] for each in plan.inputs]
            if isinstance(plan, Panels):
                self._connect(index, plan, read[index], taken[0], target, images)
            else:
                kernel = self._kernel(index, read[index])
                self._launch(index, plan, kernel, taken, target, images)
            made[plan.last] = target

    def _zeros(self, rows: int, words: int) -> Buffer:
        buffer = self.runtime.allocate((rows, words), np.uint32)
        buffer.fill(0)
        emptied: Buffer = buffer
        return emptied

    def _connect(
        self, index: int, plan: Panels, source: Source, x: Buffer, out: Buffer, images: int
    ) -> None:
        """A fully connected layer, as is best for so many images."""
        for how, read in self._ways(plan, source, images):
            target = self.rows[index] if isinstance(how, Into) else out
            cost = self._cost(index, [x], target, images)
            if isinstance(how, Into):
                cost = Cost(0, cost.bytes)
            self.runtime.enqueue(
                self._way(index, plan, read, how), plan.grid(how, images),
                (x, target, self.weights[index], images), self._names(index, plan), cost,
            )  # fmt: skip
            x = target

    def _ways(self, plan: Panels, source: Source, images: int) -> list[tuple[How, Source]]:
        """The kernels of a fully connected layer for so many images, and what each reads."""
        every = plan.how(images, self.runtime.limits.processors, self.choice.share_sums)
        return [(how, "panels" if number else source) for number, how in enumerate(every)]

    def _way(self, index: int, plan: Panels, source: Source, how: How) -> GpuKernel:
        """Compiled when first needed."""
        key = index, source, how
        if key not in self.ways:
            name = kernel_name(self.rung, self.precision, plan, len(self.plans) == 1)
            name += f"_{type(how).__name__.lower()}"
            text = kernel_text(plan, name, self.stages[0].layer, source, how)
            self.ways[key] = self.runtime.compile_text(
                name, text, plan.threads_of(how), plan.bytes_of(how)
            )
        return self.ways[key]

    def _names(self, index: int, plan: Kernel) -> tuple[str, ...]:
        first = index == 0 and self.stages[0].kind == "input"
        return ("input", *plan.names) if first else plan.names

    def _launch(
        self,
        index: int,
        plan: Stack | Dense | Tiles | Patches | Passing,
        kernel: GpuKernel,
        taken: list[Buffer],
        out: Buffer,
        images: int,
    ) -> None:
        x, *others = taken
        processors = self.runtime.limits.processors
        names = self._names(index, plan)
        if isinstance(plan, Stack):
            items = images * (len(plan.strip.starts) if plan.strip else 1)
            grid = (min(processors, items), 1, 1)
            arguments: tuple[Any, ...] = (
                x, out, self._weights(index), self.tables[index], items, *others
            )  # fmt: skip
        elif isinstance(plan, Patches):
            grid = (min(plan.sharing * processors, plan.works(images)), 1, 1)
            arguments = (x, out, self._weights(index), images, *others)
        elif isinstance(plan, Passing):
            grid = (plan.blocks(images, processors), 1, 1)
            arguments = (x, out, images, *others)
        else:
            arguments = (x, out, self._weights(index), self.parts, self.arrived, images, *others)
            if isinstance(plan, Dense):
                blocks, parts = plan.parts(images, processors)
                grid = (blocks, parts if self.choice.share_sums else 1, 1)
            else:
                parts = plan.parts(images, processors) if self.choice.share_sums else 1
                grid = (plan.row_blocks(images), plan.column_blocks, parts)
        self.runtime.enqueue(kernel, grid, arguments, names, self._cost(index, taken, out, images))

    def _cost(self, index: int, taken: list[Buffer], out: Buffer, images: int) -> Cost:
        """The layers' operations; what is read and written, and the weights, once."""
        layers = self.plans[index].names
        flops = sum(stage.flops for stage in self.stages if stage.name in layers)
        held = self.weights[index]
        weights = 0 if held is None else held.nbytes
        moved = images * sum(each.nbytes // len(each) for each in (*taken, out))
        return Cost(images * flops, moved + weights)

    def _weights(self, index: int) -> Buffer | None:
        held = self.weights[index]
        return self.tables[index] if held is None else held

    def _kernel(self, index: int, source: Source) -> GpuKernel:
        """Compiled when first needed for a type of pixels."""
        if (index, source) not in self.compiled:
            plan = self.plans[index]
            assert not isinstance(plan, Panels)  # `_connect` compiles theirs
            name = kernel_name(self.rung, self.precision, plan, len(self.plans) == 1)
            text = kernel_text(plan, name, self.stages[0].layer, source)
            self.compiled[index, source] = self.runtime.compile_text(
                name, text, plan.threads, plan.shared_bytes
            )
        return self.compiled[index, source]
