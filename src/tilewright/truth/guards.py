"""Buffers between margins of poison: what is written or read outside shows.

A margin holds NaN with bits of its own. Whoever writes there changes them; whoever reads there gets
a NaN, which no sum loses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tilewright.errors import TilewrightError
from tilewright.model.layers import Shape
from tilewright.rungs.gpu.design import BLOCK_THREADS
from tilewright.runtime import Buffer, GpuKernel, GpuRuntime, HostArray, Runtime
from tilewright.runtime.device import Device
from tilewright.runtime.dialect import Source
from tilewright.truth.evidence import (
    INPUT_POISON,
    PARAMETER_POISON,
    SCRATCH_POISON,
    SHARED_POISON,
    Damage,
)

# Elements; a multiple of what devices want pointers to be aligned to.
MARGIN = 1024
MOST_SCRATCH = 2**28  # floats: what should be there is kept here, too, and a file asks for it
HALF_NAN = 0x7E00
# For each multiprocessor, so that all of them get some.
SPOILING_BLOCKS = 4
# Shared memory filled with one value: whoever runs next and reads what it has not written gets
# that. The last line keeps a compiler from leaving it all out.
SPOIL = """
TW_ENTRY TW_NAME(TW_GLOBAL const float *value, TW_GLOBAL float *seen) {
    TW_SHARED float memory[TW_FLOATS];
    const float spoiled = value[0];
    for (int i = TW_THREAD_X; i < TW_FLOATS; i += TW_THREADS_X)
        memory[i] = spoiled;
    TW_BARRIER();
    if (TW_BLOCK_X == 0 && TW_THREAD_X == 0)
        seen[0] = memory[(int)seen[1]];
}
"""


@runtime_checkable
class FetchesTogether(Protocol):
    """A device that the host need not wait for again with each buffer."""

    def download_together(self, buffers: Sequence[Buffer]) -> list[HostArray]:
        """What is in them; valid until the next time."""


def fetched(runtime: Runtime, buffers: Sequence[Buffer]) -> list[HostArray]:
    """What is in some buffers when all work is done; on a CPU the memory itself."""
    if isinstance(runtime, FetchesTogether):
        return runtime.download_together(buffers)
    runtime.synchronise()
    return [runtime.download(each) for each in buffers]


class Guarded:
    """A buffer on a device between two margins of poison, and what it should start with."""

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        shape: Shape,
        dtype: DTypeLike,
        poison: int,
        content: HostArray | None = None,
    ) -> None:
        self.runtime, self.name, self.shape = runtime, name, shape
        kind = np.dtype(dtype)
        self.bits = np.dtype(f"u{kind.itemsize}")  # to compare by: NaN is not equal to itself
        # A NaN in two bytes as well; a byte holds anything.
        least = poison if kind.itemsize != 2 else HALF_NAN | poison & 0xFF
        self.poison = np.array(least, np.uint32).astype(self.bits)
        # Never given to a kernel: what is poisoned again is copied from here, inside the device.
        self.clean: Buffer = runtime.upload(self._poisoned().view(kind))
        self.content = np.empty(0, kind) if content is None else content.ravel()
        held = self._poisoned().view(kind)
        held[MARGIN : MARGIN + self.content.size] = self.content
        self.buffer: Buffer = runtime.upload(held)

    def _poisoned(self) -> HostArray:
        return np.full(math.prod(self.shape) + 2 * MARGIN, self.poison)

    def inside(self, images: int) -> Buffer:
        size = images * math.prod(self.shape[1:])
        return self.buffer[MARGIN : MARGIN + size].reshape(images, *self.shape[1:])

    def fill(self, content: HostArray | None) -> None:
        """Poison it all again, then put the content in; the memory stays the same."""
        self.expect(self.content[:0] if content is None else content)
        self.restore()

    def restore(self) -> None:
        """All of it as it should be."""
        self.buffer[:] = self.clean
        if size := self.content.size:
            self.buffer[MARGIN : MARGIN + size] = self.runtime.upload(self.content)

    def expect(self, content: HostArray) -> None:
        """This is what it holds at its start, and the rest is poison."""
        self.content = content.ravel()

    @property
    def looked_at(self) -> tuple[Buffer, ...]:
        """What must be as it should be: here all of it, with its margins."""
        return (self.buffer,)

    def damage(self, *held: HostArray) -> Damage | None:
        """Whether anything was written that should not have been, in what it holds: what is looked
        at, if that was fetched."""
        (content,) = held or fetched(self.runtime, self.looked_at)
        bits = np.ascontiguousarray(content).view(self.bits)
        end = MARGIN + self.content.size
        changed = (
            bits[:MARGIN] != self.poison,
            bits[MARGIN:end] != self.content.view(self.bits),
            bits[end:] != self.poison,
        )
        if not any(part.any() for part in changed):
            return None
        return _damage(self.name, np.concatenate(changed))


def rehearse(runtime: Runtime) -> None:
    """Do once what every proof does with its buffers. CuPy compiles a kernel of its own for copies
    of each type inside a device, and keeps it on disk: other processes find it there.
    """
    for dtype in (np.float32, np.uint8, np.uint32):
        Guarded(runtime, "input", (1,), dtype, INPUT_POISON).fill(np.zeros(1, dtype))
    runtime.synchronise()


def _damage(name: str, changed: NDArray[np.bool_]) -> Damage:
    before, inside, after = (
        int(np.count_nonzero(part)) for part in np.split(changed, [MARGIN, -MARGIN])
    )
    return Damage(name, before, inside, after, int(changed.argmax()) - MARGIN)


class Scratch(Guarded):
    """Memory between a layer's kernels: it may hold anything, and its margins may not change."""

    @property
    def looked_at(self) -> tuple[Buffer, ...]:
        end = MARGIN + math.prod(self.shape)
        return self.buffer[:MARGIN], self.buffer[end : end + MARGIN]

    def damage(self, *held: HostArray) -> Damage | None:
        first, last = (
            np.ascontiguousarray(each).view(self.bits) != self.poison
            for each in held or fetched(self.runtime, self.looked_at)
        )
        if not first.any() and not last.any():
            return None
        inside = np.zeros(math.prod(self.shape), bool)
        return _damage(self.name, np.concatenate([first, inside, last]))


class GuardingRuntime:
    """A runtime that puts margins around what its user uploads and allocates.

    Weights and scratch of a layer are made by whoever prepares it: here they are guarded without
    its knowing. All else the runtime does as before.
    """

    def __init__(self, runtime: GpuRuntime) -> None:
        self.inner = runtime
        self.parameters: list[tuple[Guarded, Buffer]] = []
        self.scratch: list[tuple[Guarded, Buffer]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def upload(self, array: HostArray) -> Buffer:
        flat = (array.size,)
        content = np.array(array, order="C")  # the array is the caller's to change
        guarded = Guarded(self.inner, "parameters", flat, array.dtype, PARAMETER_POISON, content)
        return self._given(self.parameters, guarded, array.shape)

    def allocate(self, shape: Shape, dtype: DTypeLike = np.float32) -> Buffer:
        size = math.prod(shape)
        if size > MOST_SCRATCH:
            raise TilewrightError(
                f"its scratch takes {size:,} floats; more than {MOST_SCRATCH:,} are not guarded"
            )
        guarded = Scratch(self.inner, "scratch", (size,), dtype, SCRATCH_POISON)
        return self._given(self.scratch, guarded, shape)

    def poison(self) -> None:
        """All scratch again, and shared memory: what a call leaves there is not for the next."""
        for guarded, _ in self.scratch:
            guarded.fill(None)
        kernel, arguments = self.spoiler
        blocks = SPOILING_BLOCKS * self.inner.limits.processors
        self.inner.enqueue(kernel, (blocks, 1, 1), arguments, ())

    @cached_property
    def spoiler(self) -> tuple[GpuKernel, list[Buffer | int]]:
        """A kernel that fills shared memory with NaN, and what it is given."""
        limits = self.inner.limits
        floats, threads = limits.shared_bytes // 4, min(BLOCK_THREADS, limits.threads)
        made = Source("spoil", SPOIL, (threads, 1, 1), (("FLOATS", floats),), floats)
        value = np.full(1, SHARED_POISON, np.uint32).view(np.float32)
        given = [self.inner.upload(value), self.inner.upload(np.zeros(2, np.float32))]
        return self.inner.compile(made), [*given]

    def restore(self) -> None:
        """Parameters as they were sent."""
        for guarded, _ in self.parameters:
            guarded.restore()

    def looked_at(self, names: Mapping[int, str], all_of_it: bool) -> list[Guarded]:
        """The buffers with names, which are known by their identity; or all that there are."""
        found = []
        for guarded, buffer in (*self.parameters, *self.scratch):
            guarded.name = names.get(id(buffer), guarded.name)
            if all_of_it or id(buffer) in names:
                found.append(guarded)
        return found

    def _given(self, kept: list[tuple[Guarded, Buffer]], guarded: Guarded, shape: Shape) -> Buffer:
        buffer = guarded.inside(guarded.shape[0]).reshape(*shape)
        kept.append((guarded, buffer))
        return buffer


def guarding(opened: Callable[[Device, str], Runtime]) -> Callable[[Device, str], Runtime]:
    """A way to open a runtime of a GPU, with margins."""

    def open_runtime(device: Device, memory: str) -> Runtime:
        runtime = opened(device, memory)
        assert isinstance(runtime, GpuRuntime), device
        return cast(Runtime, GuardingRuntime(runtime))

    return open_runtime
