"""Tilewright: small convolutional networks, from a for-loop to one fused kernel."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.errors import TilewrightError
    from tilewright.fuse.cpu.run import FusedNetwork as compile
    from tilewright.model.formats.weights import save
    from tilewright.model.load import load
    from tilewright.model.network import Network

__version__ = "0.1.0"

# Where each public name lives; imported on first use, so that `tilewright --help` needs none.
_PUBLIC = {
    "Network": ("tilewright.model.network", "Network"),
    "TilewrightError": ("tilewright.errors", "TilewrightError"),
    "compile": ("tilewright.fuse.cpu.run", "FusedNetwork"),
    "load": ("tilewright.model.load", "load"),
    "save": ("tilewright.model.formats.weights", "save"),
}
__all__ = ["Network", "TilewrightError", "compile", "load", "save"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        module, attribute = _PUBLIC[name]
        return getattr(import_module(module), attribute)
    raise AttributeError(f"module 'tilewright' has no attribute {name!r}")
