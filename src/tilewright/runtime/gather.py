"""What a network's kernels are, before any is compiled: so that they are compiled side by side.

A rung prepares its layers on a stand-in for its runtime, which has the same limits, holds nothing
and takes down each text that it is asked to compile. Preparing costs milliseconds where compiling
costs seconds, and no rung has to know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike

from tilewright.model.layers import Shape
from tilewright.runtime import GpuKernel, HostArray, Runtime
from tilewright.runtime.dialect import DoesNotFit, Limits, Source
from tilewright.runtime.nvrtc import Compiled

Text = tuple[str, str]  # a kernel's name, and all of its source


@runtime_checkable
class CompilesAhead(Protocol):
    """A runtime that can compile kernels while something else is done."""

    limits: Limits
    capability: int

    def compile_ahead(self, texts: Iterable[Text]) -> Sequence[Future[Compiled]]:
        """Begin to compile kernels by their names and texts; `compile` waits for its own."""


@dataclass
class Gathering:
    """A runtime that only remembers what it should compile."""

    limits: Limits
    capability: int
    texts: dict[Text, None] = field(default_factory=dict)
    trace: None = None
    reads: bool = False  # what is uploaded to it

    def allocate(self, shape: Shape, dtype: DTypeLike = np.float32) -> HostArray:
        return np.empty(0, dtype)

    def upload(self, array: HostArray) -> HostArray:
        return array

    def write(self, buffer: HostArray, array: HostArray) -> None:
        pass

    def compile(self, source: Source) -> GpuKernel:
        source.check(self.limits)
        self.texts[source.name, source.complete] = None
        constant = self.allocate(()) if source.constant_floats else None
        return GpuKernel(source.name, source.block, None, constant)

    def compile_text(self, name: str, text: str, threads: int, shared_bytes: int) -> GpuKernel:
        self.texts[name, text] = None
        return GpuKernel(name, (threads, 1, 1), None, shared_bytes=shared_bytes)


def reads(runtime: object) -> bool:
    """Whether what is uploaded will be read: for a stand-in, weights need not be packed."""
    return not isinstance(runtime, Gathering) or runtime.reads


def gathered(runtime: CompilesAhead, prepare: Callable[[Gathering], object]) -> dict[Text, None]:
    """All that is asked for when something is prepared, in order.

    What does not fit, or does not compile, is left for whoever prepares it in earnest to say.
    """
    gathering = Gathering(runtime.limits, runtime.capability)
    with suppress(DoesNotFit):
        prepare(gathering)
    return gathering.texts


def compile_together(
    runtime: Runtime, prepare: Callable[[Gathering], object]
) -> Sequence[Future[Compiled]]:
    """Begin to compile all of it."""
    if not isinstance(runtime, CompilesAhead):
        return ()
    return runtime.compile_ahead(gathered(runtime, prepare))
