"""On the CPU: the rung `fused`, one function for all of the network (`tilewright.fuse.cpu`)."""

from __future__ import annotations

from typing import Any

from tilewright.fuse.cpu.choice import rules_of
from tilewright.fuse.cpu.run import FusedNetwork
from tilewright.model.network import Network
from tilewright.rungs.rung import Rung
from tilewright.runtime.device import Device
from tilewright.serving.compiled import Compiled


class CpuCompiled(Compiled):
    """Uses all cores that the process may run on; of several callers the first has their help.

    Machine code is made once for a network's shapes and kept on disk. Images that are not
    contiguous are copied.
    """

    def __init__(self, network: Network, device: Device, rung: Rung, batch: int | None) -> None:
        super().__init__(network, device, rung, batch)
        self.fused = FusedNetwork(network, rules=rules_of(rung.precision))

    def __call__(self, images: Any, out: Any = None, stream: Any = None) -> Any:
        if stream is not None:
            raise self.no_streams(stream)
        batch, outputs, given = self.of_host(images, out)
        self.fused.into(batch, outputs)
        return given
