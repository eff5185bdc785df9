"""The contract of a compiled network: one call, whatever the device and whoever's the array."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.model.batches import too_many
from tilewright.model.network import Network
from tilewright.rungs.rung import Rung
from tilewright.runtime.device import Device
from tilewright.serving import host


class Compiled(ABC):
    """A network ready on a device: call it with a batch of images, get the network's output.

    Images are (image, channel, y, x): uint8 pixels of 0 to 255, which the network's input scales,
    or float32 values, which enter the first layer as they are; other types are refused. Outputs are
    float32, of the caller's kind: NumPy for NumPy, a tensor for a tensor. With `out` they are
    written there, and `out` is returned. `stream` is the CUDA stream to work on, a handle or a
    library's object; without it a call works on the current stream of the library whose arrays
    these are. Calls may come from any number of threads at once.
    """

    def __init__(self, network: Network, device: Device, rung: Rung, batch: int | None) -> None:
        self.network, self.device, self.batch = network, device, batch
        self.rung, self.precision = rung.name, rung.precision.name

    @abstractmethod
    def __call__(self, images: Any, out: Any = None, stream: Any = None) -> Any:
        """The outputs for a batch of any size up to the largest, also of none."""

    def __repr__(self) -> str:
        most = "of any size" if self.batch is None else f"of up to {self.batch:,}"
        return (
            f"<{self.network.name!r} on {self.device}: rung {self.rung}, {self.precision}, "
            f"batches {most}>"
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a compiled network belongs to its process and device: send the network, compile there"
        )

    def of_host(self, images: Any, out: Any) -> tuple[NDArray[Any], NDArray[np.float32], Any]:
        """A batch in the host's memory, an array for its outputs, and what the caller gets."""
        batch = host.read(images, self.network)
        self.check_count(len(batch))
        shape = (len(batch), *self.network.output_shape)
        return batch, *host.results(images, batch, out, shape)

    def check_count(self, images: int) -> None:
        if self.batch is not None and images > self.batch:
            raise too_many(images, self.batch)

    def no_streams(self, stream: object) -> TilewrightError:
        return TilewrightError(
            f"stream={stream!r:.60}: streams are CUDA's; on {self.device} a call is over when it "
            "returns"
        )
