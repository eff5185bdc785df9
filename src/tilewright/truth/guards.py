"""Buffers between margins of poison: what is written or read outside shows.

A margin holds NaN with bits of its own. Whoever writes there changes them; whoever reads there gets
a NaN, which no sum loses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tilewright.errors import TilewrightError
from tilewright.model.layers import Shape
from tilewright.rungs.gpu.design import BLOCK_THREADS
from tilewright.runtime import Buffer, GpuKernel, GpuRuntime, HostArray, Runtime
from tilewright.runtime.device import Device
from tilewright.runtime.dialect import Source
from tilewright.truth.evidence import PARAMETER_POISON, SCRATCH_POISON, SHARED_POISON, Damage

# Elements; a multiple of what devices want pointers to be aligned to.
MARGIN = 1024
MOST_SCRATCH = 2**28  # floats: what should be there is kept here, too, and a file asks for it
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


class Guarded:
    """A buffer on a device between two margins of poison, and what it should hold."""

    def __init__(
        self, runtime: Runtime, name: str, shape: Shape, dtype: DTypeLike, poison: int
    ) -> None:
        self.runtime, self.name, self.shape = runtime, name, shape
        bits = np.full(math.prod(shape) + 2 * MARGIN, poison, np.uint32)
        self.poison = bits.view(dtype) if np.dtype(dtype).itemsize == 4 else bits.astype(dtype)
        self.expected = self.poison.copy()
        self.buffer: Buffer = runtime.upload(self.poison.copy())

    def inside(self, images: int) -> Buffer:
        size = images * math.prod(self.shape[1:])
        return self.buffer[MARGIN : MARGIN + size].reshape(images, *self.shape[1:])

    def fill(self, content: HostArray | None) -> None:
        """Poison it all again, then put the content in; the memory stays the same."""
        self.expected[:] = self.poison
        if content is not None:
            self.expect(content)
        self.restore()

    def restore(self) -> None:
        """All of it as it should be."""
        self.buffer[:] = self.runtime.upload(self.expected.copy())

    def expect(self, content: HostArray) -> None:
        self.expected[MARGIN : MARGIN + content.size] = content.ravel()

    def damage(self) -> Damage | None:
        """Whether anything was written that should not have been."""
        changed = _differs(self.runtime.download(self.buffer), self.expected)
        return _damage(self.name, changed) if changed.any() else None


def _differs(held: HostArray, expected: HostArray) -> NDArray[np.bool_]:
    bits = f"u{expected.itemsize}"  # NaN is not equal to itself
    different: NDArray[np.bool_] = np.ascontiguousarray(held).view(bits) != expected.view(bits)
    return different


def _damage(name: str, changed: NDArray[np.bool_]) -> Damage:
    before, inside, after = (
        int(np.count_nonzero(part)) for part in np.split(changed, [MARGIN, -MARGIN])
    )
    return Damage(name, before, inside, after, int(changed.argmax()) - MARGIN)


class Scratch(Guarded):
    """Memory between a layer's kernels: it may hold anything, and its margins may not change."""

    def damage(self) -> Damage | None:
        size = len(self.expected)
        inside = np.zeros(size - 2 * MARGIN, bool)
        ends = (slice(0, MARGIN), slice(size - MARGIN, size))
        first, last = (
            _differs(self.runtime.download(self.buffer[end]), self.expected[end]) for end in ends
        )
        if not first.any() and not last.any():
            return None
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
        guarded = Guarded(self.inner, "parameters", flat, array.dtype, PARAMETER_POISON)
        guarded.fill(np.ascontiguousarray(array))
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

    def damage(self, names: dict[int, str]) -> list[Damage]:
        """What was changed, by the names that buffers have; known by their identity."""
        found = []
        for guarded, buffer in (*self.parameters, *self.scratch):
            guarded.name = names.get(id(buffer), guarded.name)
            if (damage := guarded.damage()) is not None:
                found.append(damage)
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
