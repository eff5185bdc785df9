"""Tilewright: small convolutional networks, from a for-loop to one fused kernel.

    network = tilewright.load("cifar10")       # a network and its weights
    classify = tilewright.compile(network)     # one function for this CPU
    probabilities = classify(images)           # uint8 pixels: image, channel, y, x

docs/python.md has all of it. The command line does more: `tilewright --help`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.errors import TilewrightError
    from tilewright.fuse.cpu.run import FusedNetwork
    from tilewright.model.formats.torch_import import from_torch
    from tilewright.model.formats.weights import save
    from tilewright.model.load import load
    from tilewright.model.network import Network

__version__ = "0.1.0"

# Where a public name lives; imported on first use, so that `tilewright --help` needs none.
_ELSEWHERE = {
    "Network": "tilewright.model.network",
    "TilewrightError": "tilewright.errors",
    "from_torch": "tilewright.model.formats.torch_import",
    "load": "tilewright.model.load",
    "save": "tilewright.model.formats.weights",
}
__all__ = ["Network", "TilewrightError", "compile", "from_torch", "load", "save"]


def compile(network: Network) -> FusedNetwork:
    """The network with its weights as one function for this CPU.

    Call what comes back with a batch of images, (image, channel, y, x), of any size: uint8 pixels,
    which the network's input scales, or float32 values, which enter the first layer as they are.
    It gives the last layer's output for each image, in float32. It uses all cores; calls may come
    from several threads at once. Machine code is made once for a network's shapes and kept on disk.
    """
    from tilewright.fuse.cpu.run import FusedNetwork

    return FusedNetwork(network)


def __getattr__(name: str) -> object:
    if name in _ELSEWHERE:
        return getattr(import_module(_ELSEWHERE[name]), name)
    raise AttributeError(f"module 'tilewright' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
