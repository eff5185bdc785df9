"""Through OpenCL: the highest rung of the ladder there, with buffers that stay on the device.

Arrays come from the host's memory and go back there: OpenCL's own buffers are no arrays that other
libraries would know. Callers wait for one another, since they share the device's queue and the
memory between layers.
"""

from __future__ import annotations

from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.execute import Program
from tilewright.model.network import Network
from tilewright.plan import uniform
from tilewright.rungs.rung import Rung
from tilewright.runtime import Buffer
from tilewright.runtime.device import Device
from tilewright.serving.compiled import Compiled

# Images that go through at once where no largest batch is named: larger ones go in pieces.
PIECE = 1000


class OpenClCompiled(Compiled):
    """Images that are not contiguous are copied on their way."""

    def __init__(self, network: Network, device: Device, rung: Rung, batch: int | None) -> None:
        super().__init__(network, device, rung, batch)
        plan = uniform(network, rung, device, min(batch or PIECE, PIECE), "resident")
        self.program = Program(network, plan, {rung.name: rung})
        self.turn = RLock()
        self.given: dict[np.dtype[Any], Buffer] = {}
        self.kept: Buffer | None = None

    def __call__(self, images: Any, out: Any = None, stream: Any = None) -> Any:
        if stream is not None:
            raise self.no_streams(stream)
        batch, outputs, given = self.of_host(images, out)
        piece = self.program.plan.batch
        with self.turn:
            for first in range(0, len(batch), piece):
                outputs[first : first + piece] = self._piece(batch[first : first + piece])
        return given

    def _piece(self, images: NDArray[Any]) -> NDArray[np.float32]:
        program, runtime, count = self.program, self.program.gpu, len(images)
        if program.capacity < count:
            program.create_outputs(count)
            self.kept, self.given = None, {}
        if self.kept is None:
            self.kept = runtime.allocate((program.capacity, *self.network.output_shape))
        if images.dtype not in self.given:
            size = (program.capacity, *self.network.input.shape)
            self.given[images.dtype] = runtime.allocate(size, images.dtype)
        x, y = self.given[images.dtype][:count], self.kept[:count]
        runtime.write(x, images)
        program.into(x, y)
        return runtime.download(y)
