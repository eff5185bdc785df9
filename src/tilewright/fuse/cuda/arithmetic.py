"""What numbers a whole-network kernel computes with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.precision import FLOAT32, FP16, TF32, TF32X3, Precision
from tilewright.runtime.dialect import DoesNotFit

Words = NDArray[np.uint32]


@dataclass(frozen=True)
class Arithmetic:
    """Operands lie in words of 32 bits, `per_word` to a word; sums are always float32.

    A step of a sum takes `step` words of each operand: what a tensor core's instruction takes, or
    two, where there are none. A half step takes half as many.

    Where operands are made of `parts`, the first the nearest number of 11 bits to a float, the next
    what it leaves, in device memory it is whole; who reads it splits it.
    """

    precision: Precision
    per_word: int
    tensor: bool
    parts: int = 1

    def __hash__(self) -> int:
        """Of its name, which strings keep: it is part of whatever plans are looked up by."""
        return hash(self.precision.name)

    @property
    def name(self) -> str:
        return self.precision.name

    @property
    def step(self) -> int:
        return 8 if self.tensor else 2

    @property
    def rounds(self) -> bool:
        """Whether an operand is another number than the float in its place."""
        return self.tensor and self.per_word == 1 and self.parts == 1

    @property
    def products(self) -> int:
        """Of parts, that make a product: those that are too small to matter are left out."""
        return self.parts * (self.parts + 1) // 2

    @property
    def from_shared(self) -> bool:
        """Whether tensor cores can take operands from shared memory themselves."""
        return self.tensor and self.parts == 1

    @property
    def whole(self) -> Arithmetic:
        """The same, but for operands in parts: float32, whose words are the same."""
        return self if self.parts == 1 else ARITHMETICS[FLOAT32.name]

    def words(self, channels: int) -> int:
        """Words that hold so many channels of a pixel."""
        return -(-channels // self.per_word)

    def operands(self, values: NDArray[np.float32]) -> Words:
        """Values as operands, rounded; the last axis is what shares a word."""
        if self.per_word == 2:
            with np.errstate(over="ignore"):
                halves = values.astype(np.float16)
            return np.ascontiguousarray(halves).view(np.uint32)
        plain = np.ascontiguousarray(values, np.float32)
        bits = plain.view(np.uint32)
        if not self.rounds:
            return bits
        # To the nearest number of 10 fraction bits, as cvt.rna.tf32 does; what is none stays so.
        rounded = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
        return np.where(np.isfinite(plain), rounded, bits)

    def in_parts(self, values: NDArray[np.float32]) -> tuple[Words, ...]:
        """The same as what tensor cores read of them: their parts, the first one first."""
        if self.parts == 1:
            return (self.operands(values),)
        high = ARITHMETICS[TF32.name].operands(values)
        low = values - high.view(np.float32).reshape(values.shape)
        return high, low.view(np.uint32)

    def check_weights(self, layer: str, weight: NDArray[np.float32]) -> None:
        """Refuse what would be infinite as an operand: a tanh or a ReLU can make a number of it."""
        # From half a unit beyond the largest number of 11 bits on.
        nearest = 2 - 2.0**-11 if self.tensor else 2.0
        infinite = nearest * 2.0 ** (15 if self.per_word == 2 else 127)
        worst = max(weight.min(), weight.max(), key=abs) if weight.size else np.float32(0)
        if abs(float(worst)) >= infinite:
            raise DoesNotFit(
                f"{layer}: a weight of {worst:g} is too large for {self.name}; fp32 has room for it"
            )


ARITHMETICS = {
    "fp16": Arithmetic(FP16, per_word=2, tensor=True),
    "tf32": Arithmetic(TF32, per_word=1, tensor=True),
    "tf32x3": Arithmetic(TF32X3, per_word=1, tensor=True, parts=2),
    "fp32": Arithmetic(FLOAT32, per_word=1, tensor=False),
}
