"""A device as users name it: `cpu`, `opencl`, `cuda`, or one of several as in `cuda:1`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from tilewright.errors import TilewrightError

Kind = Literal["cpu", "opencl", "cuda"]
GPU_KINDS: tuple[Kind, ...] = ("opencl", "cuda")
KINDS: tuple[Kind, ...] = ("cpu", *GPU_KINDS)


@dataclass(frozen=True)
class Device:
    """A kind of device, and which of several; `str` of it is what users write.

    Without a number it is the first of its kind. Of OpenCL's that is not the same as number 0: a
    simulator is never meant by those who do not name one.
    """

    kind: Kind
    number: int | None = None

    @classmethod
    def parse(cls, name: str) -> Device:
        kind, colon, number = str(name).partition(":")
        for known in KINDS:
            if kind == known and not colon:
                return cls(known)
            if kind == known != "cpu" and re.fullmatch("[0-9]{1,3}", number):
                return cls(known, int(number))
        raise TilewrightError(
            f"unknown device {name!r:.100}; name {', '.join(KINDS[:-1])} or {KINDS[-1]}, or one of "
            "several as in cuda:1"
        )

    @property
    def index(self) -> int:
        """Its place among those of its kind."""
        return self.number or 0

    @property
    def is_gpu(self) -> bool:
        """Whether it is driven like a GPU, as a CPU is too through OpenCL."""
        return self.kind != "cpu"

    def __str__(self) -> str:
        return self.kind if self.number is None else f"{self.kind}:{self.number}"


# The first of each kind.
DEVICES = CPU, OPENCL, CUDA = Device("cpu"), Device("opencl"), Device("cuda")
