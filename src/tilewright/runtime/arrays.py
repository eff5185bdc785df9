"""Memory of a device that is known by a handle, as an array: a piece of it, with a shape."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from tilewright.model.layers import Shape


class Copier(Protocol):
    """What a runtime must be able to do with its arrays."""

    def copy(self, target: Array, source: Array) -> None:
        """Inside the device."""


@dataclass(frozen=True)
class Array:
    """Device memory with a shape: a piece of a buffer, from `offset` bytes on."""

    runtime: Copier
    memory: Any
    shape: Shape
    dtype: np.dtype[Any]
    offset: int = 0

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def __getitem__(self, piece: slice) -> Array:
        start, stop, step = piece.indices(len(self))
        assert step == 1
        row = math.prod(self.shape[1:]) * self.dtype.itemsize
        shape = (max(0, stop - start), *self.shape[1:])
        return replace(self, shape=shape, offset=self.offset + start * row)

    def __setitem__(self, piece: slice, other: Array) -> None:
        target = self[piece]
        assert target.shape == other.shape and target.dtype == other.dtype
        self.runtime.copy(target, other)

    def reshape(self, *shape: int) -> Array:
        assert math.prod(shape) == math.prod(self.shape)
        return replace(self, shape=shape)
