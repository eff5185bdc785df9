"""Tilewright: small convolutional networks, from a for-loop to one fused kernel."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.errors import TilewrightError
    from tilewright.model.load import load
    from tilewright.model.network import Network

__version__ = "0.1.0"

# Where each public name lives; imported on first use, so that `tilewright --help` needs none.
_PUBLIC = {
    "Network": "tilewright.model.network",
    "TilewrightError": "tilewright.errors",
    "load": "tilewright.model.load",
}
__all__ = ["Network", "TilewrightError", "load"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'tilewright' has no attribute {name!r}")
