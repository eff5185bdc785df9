"""What devices this machine has, and for those it has not, why and how to get them."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.runtime.device import KINDS
from tilewright.runtime.dialect import Limits
from tilewright.runtime.registry import backend


@dataclass(frozen=True)
class Found:
    """A device by the name that `--device` takes.

    `problem` is why it cannot be used and how that changes. `limits` are those that kernels keep
    to; the CPU has none. `managed` says whether it shares memory with the host; where there is no
    other memory, that is no question (None).
    """

    name: str
    model: str = ""
    problem: str | None = None
    simulator: bool = False
    processors: int = 0
    memory_bytes: int = 0
    limits: Limits | None = None
    managed: bool | None = None
    details: str = ""


def inventory() -> list[Found]:
    """The CPU, then every OpenCL device, then every CUDA GPU."""
    return [found for kind in KINDS for found in backend(kind).inventory()]
