"""The devices, one contract: a rung is written once against it and never asks where it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tilewright.model.layers import Shape
from tilewright.trace import Trace

# A device's own array type: a NumPy array on the CPU, a framework's tensor elsewhere.
Buffer = Any


@dataclass(frozen=True)
class Kernel:
    """Something built that can be launched. Its name is what traces and profiles show.

    A kernel of several `parts`, each with its layers, returns how long each took, in any unit;
    the time of a launch is then recorded part by part in that proportion.
    """

    name: str
    function: Callable[..., Any]
    parts: tuple[tuple[str, ...], ...] = ()


class Runtime(Protocol):
    """A device. Work may be asynchronous: only after `synchronise` is the trace complete."""

    name: str
    trace: Trace

    def describe(self) -> str:
        """The device in words: model and what matters of its size."""

    def allocate(self, shape: Shape) -> Buffer:
        """An uninitialised float32 buffer."""

    def upload(self, array: NDArray[Any]) -> Buffer:
        """Host to device; recorded as a copy where anything is copied."""

    def download(self, buffer: Buffer) -> NDArray[np.float32]:
        """Device to host; waits for the work that fills the buffer."""

    def build(
        self, name: str, function: Callable[..., Any], parts: tuple[tuple[str, ...], ...] = ()
    ) -> Kernel:
        """Make a kernel of what a rung describes."""

    def launch(self, kernel: Kernel, *arguments: Any, layers: tuple[str, ...]) -> Any:
        """Run a kernel and record it with the layers it computes."""

    def synchronise(self) -> None:
        """Wait until everything launched is done and recorded."""
