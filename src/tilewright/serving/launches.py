"""Launches made ready: what a network's kernels take for a size of batch, as C values.

The network is called once on places that stand for images and outputs, through a runtime that
only notes. What it would have launched is kept; to launch it is then to fill in two addresses.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int32, c_uint, c_void_p
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from tilewright.model.layers import Shape
from tilewright.runtime import Buffer, GpuKernel, HostArray
from tilewright.runtime.arrays import Array
from tilewright.runtime.dialect import Grid
from tilewright.serving.card import Card
from tilewright.trace import Cost

IMAGES, OUTPUTS = "images", "outputs"
Noted = tuple[GpuKernel, Grid, Sequence[Any]]


class Noting:
    """A runtime that allocates and compiles as any, and launches nothing."""

    def __init__(self, card: Card) -> None:
        self.card, self.limits, self.capability = card, card.limits, card.capability
        self.allocated = False
        self.noted: list[Noted] = []

    def allocate(self, shape: Shape, dtype: DTypeLike = np.float32) -> Any:
        self.allocated = True
        return self.card.allocate(shape, dtype)

    def upload(self, array: HostArray) -> Any:
        self.allocated = True
        return self.card.upload(array)

    def write(self, buffer: Buffer, array: HostArray) -> None:
        raise NotImplementedError("weights are shared: they are not sent again")

    def copy(self, target: Array, source: Array) -> None:
        raise NotImplementedError("kernels alone write where outputs go")

    def compile_text(self, name: str, text: str, threads: int, shared_bytes: int) -> GpuKernel:
        return self.card.compile_text(name, text, threads, shared_bytes)

    def enqueue(
        self,
        kernel: GpuKernel,
        grid: Grid,
        arguments: Sequence[Any],
        layers: tuple[str, ...],
        cost: Cost | None = None,
    ) -> None:
        self.noted.append((kernel, grid, tuple(arguments)))

    def place(self, name: str, shape: Shape, dtype: DTypeLike) -> Array:
        """Something that stands for memory whose address is not known yet."""
        return Array(self, name, shape, np.dtype(dtype))


class Launches:
    """Of one batch, in order. One thread at a time may use it."""

    def __init__(self, card: Card, noted: Sequence[Noted]) -> None:
        self.places: dict[str, list[tuple[c_void_p, int]]] = {IMAGES: [], OUTPUTS: []}
        self.kept: list[object] = []  # what the driver is given the addresses of
        self.ready = [self._ready(card, *each) for each in noted]
        self.images, self.outputs = tuple(self.places[IMAGES]), tuple(self.places[OUTPUTS])
        self.launch, self.fault = card.driver.launch, card.driver.fault

    def __call__(self, images: int, outputs: int, stream: int) -> None:
        """Launch all of it, with these addresses, on a stream."""
        for slot, offset in self.images:
            slot.value = images + offset
        for slot, offset in self.outputs:
            slot.value = outputs + offset
        on, launch = c_void_p(stream), self.launch
        for head, arguments in self.ready:
            if error := launch(*head, on, arguments, None):
                raise self.fault(error)

    def _ready(
        self, card: Card, kernel: GpuKernel, grid: Grid, arguments: Sequence[Any]
    ) -> tuple[tuple[object, ...], c_void_p]:
        values = [self._value(card, each) for each in arguments]
        addresses = (c_void_p * len(values))(*map(ctypes.addressof, values))
        self.kept += [values, addresses]
        sizes = map(c_uint, (*grid, *kernel.block, kernel.shared_bytes))
        return (c_void_p(card.function(kernel)), *sizes), c_void_p(ctypes.addressof(addresses))

    def _value(self, card: Card, argument: Any) -> c_void_p | c_int32:
        if isinstance(argument, Array):
            slot = c_void_p()
            self.places[argument.memory].append((slot, argument.offset))
            return slot
        if isinstance(argument, int):
            return c_int32(argument)
        return c_void_p(None if argument is None else card.address(argument))
