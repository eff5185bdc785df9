"""A compiled network as a callable on NumPy arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.environment import cpu_cores
from tilewright.errors import TilewrightError
from tilewright.files import cache_home
from tilewright.fuse.cpu.build import Machine, compile_network, host
from tilewright.fuse.cpu.generate import layout, pack
from tilewright.model.layers import dimensions
from tilewright.model.network import Network
from tilewright.threads import share

ALIGNMENT = 64


def compiled_folder() -> Path:
    """Where compiled networks are kept."""
    return cache_home() / "compiled"


class FusedNetwork:
    """A network as one function for this CPU: call it with images, get the network's output.

    Images are uint8 pixels or float32 values, (image, channel, y, x). Calls may come from several
    threads at once; each uses all cores.
    """

    def __init__(self, network: Network, on: Machine | None = None) -> None:
        if not network.parameters and network.parameter_shapes:
            raise TilewrightError(f"network {network.name!r} has no weights to compile with")
        self.network = network
        self.compiled = compile_network(network, on or host(), compiled_folder())
        self.weights = _aligned(pack(self.compiled.schedule, network.parameters))
        self.scratch_size = layout(self.compiled.schedule).size
        # Memory of calls that are over, for those to come: taken and given back without a lock.
        self.free: list[NDArray[np.float32]] = []

    def __call__(self, images: NDArray[Any]) -> NDArray[np.float32]:
        """The outputs for a batch of any size."""
        if images.dtype != np.uint8:
            images = images.astype(np.float32, copy=False)
        if images.shape[1:] != self.network.input.shape:
            raise TilewrightError(
                f"images are {dimensions(images.shape[1:])}, but {self.network.name!r} takes "
                f"{dimensions(self.network.input.shape)}"
            )
        outputs = np.empty((len(images), *self.network.output_shape), np.float32)
        self.run(np.ascontiguousarray(images), outputs)
        return outputs

    @property
    def parts(self) -> tuple[tuple[str, ...], ...]:
        """The layers of the input and of each group, in the order of `run`'s result."""
        groups = self.compiled.schedule.groups
        return ("input",), *(tuple(stage.name for stage in group.stages) for group in groups)

    def run(self, images: NDArray[Any], outputs: NDArray[np.float32]) -> NDArray[np.int64]:
        """Fill `outputs`; both arrays are contiguous and of the network's shapes.

        Returns the clock ticks that each part took, on all cores together.
        """
        total = np.zeros(len(self.parts), np.int64)
        entry = self.compiled.entries["u8" if images.dtype == np.uint8 else "f32"]
        lanes = self.compiled.schedule.target.lanes
        blocks = -(-len(images) // lanes)

        def work(first: int, last: int) -> None:
            try:
                scratch = self.free.pop()
            except IndexError:
                scratch = _aligned(np.zeros(self.scratch_size, np.float32))
            end = min(last * lanes, len(images))
            # ctypes lets go of the GIL for the call.
            ticks = np.zeros_like(total)
            entry(images.ctypes.data, outputs.ctypes.data, self.weights.ctypes.data,
                  scratch.ctypes.data, ticks.ctypes.data, first * lanes, end)  # fmt: skip
            self.free.append(scratch)
            all_ticks.append(ticks)

        all_ticks: list[NDArray[np.int64]] = []
        share(work, blocks, cpu_cores())
        return np.sum(all_ticks, axis=0, out=total)


def _aligned(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """A copy that starts at a multiple of 64 bytes, as the widest vectors want it."""
    room = np.empty(values.size + ALIGNMENT // 4, np.float32)
    start = -room.ctypes.data % ALIGNMENT // 4
    inside = room[start : start + values.size]
    inside[:] = values
    return inside
