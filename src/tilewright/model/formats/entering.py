"""How pixels enter a network that a file or a module defines for floating point.

Such a network does not say how bytes become its numbers. Here they enter as `value / 255`, as
PyTorch's `ToTensor` gives them, until somebody says otherwise. What the network does to them first
stays one of its layers, so that floating point given instead of pixels means the same as in the
file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.errors import TilewrightError
from tilewright.model.layers import Pixels, Shape
from tilewright.model.network import Network

Numbers = float | Sequence[float]
USUAL = 1 / 255
# The note that a network has whose file did not say it.
NOTE = "input"
SAID = (
    "takes floating point and does not say how pixels become it: taken as value / 255; "
    "`tilewright convert --input-scale` changes that"
)


def first(shape: Shape, pixels: bool) -> Pixels:
    """Pixels as they are, for a network that takes them; else as they usually enter."""
    return Pixels(shape, 1.0, 0.0) if pixels else Pixels(shape, USUAL, 0.0)


def entering(network: Network, scale: Numbers | None, shift: Numbers | None) -> Network:
    """The network with `value * scale + shift` instead of `value / 255`."""
    if scale is None and shift is None:
        return network
    if NOTE not in network.notes:
        raise TilewrightError(
            f"network {network.name!r} says how pixels enter it: neither scale nor shift is free"
        )
    before, after = USUAL if scale is None else scale, 0.0 if shift is None else shift
    pixels = Pixels(network.input.shape, _plain(before), _plain(after))
    notes = {key: text for key, text in network.notes.items() if key != NOTE}
    return replace(network, input=pixels, notes=notes)


def _plain(given: Numbers) -> float | tuple[float, ...]:
    return float(given) if isinstance(given, int | float) else tuple(map(float, given))
