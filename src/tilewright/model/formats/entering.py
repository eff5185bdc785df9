"""How pixels enter a network that a file or a module defines for floating point.

Such a network does not say how bytes become its numbers. Here they enter as `value / 255`, as
PyTorch's `ToTensor` gives them, until somebody says otherwise. What the network does to them first
stays one of its layers, so that floating point given instead of pixels means the same as in the
file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.model.formats.draft import Draft
from tilewright.model.formats.parts import Value
from tilewright.model.layers import Pixels, Shape, dimensions
from tilewright.model.network import Network

Numbers = float | Sequence[float]
USUAL = 1 / 255
# The note that a network has whose file did not say it.
NOTE = "input"
SAID = (
    "takes floating point and does not say how pixels become it: taken as value / 255; "
    "`tilewright convert --input-scale` changes that"
)


def begin(shape: Shape, pixels: bool, channels_last: bool = False) -> tuple[Draft, Value]:
    """A draft of a network that takes such images, and its input as the file sees it.

    Pixels enter as they are where it takes them, else as they usually do. Rows are taken as the
    pictures that they most likely were.
    """
    picture = shape
    if channels_last:
        picture = (shape[2], *shape[:2])
    elif len(shape) == 1:
        picture = _picture(shape[0])
    draft = Draft(Pixels(picture, 1.0 if pixels else USUAL, 0.0), normalises=pixels)
    if not pixels:
        draft.notes[NOTE] = SAID
    given = Value(0, last=channels_last)
    if len(shape) == 1:
        draft.notes["rows"] = f"takes rows of {shape[0]}: here pictures of {dimensions(picture)}"
        given = draft.reshape("input", given, shape)
    return draft, given


def entering(network: Network, scale: Numbers | None, shift: Numbers | None) -> Network:
    """The network with `value * scale + shift` instead of `value / 255`."""
    if scale is None and shift is None:
        return network
    if NOTE not in network.notes:
        raise TilewrightError(
            f"network {network.name!r} says how pixels enter it: neither scale nor shift is free"
        )
    before, after = USUAL if scale is None else scale, 0.0 if shift is None else shift
    pixels = Pixels(network.input.shape, _plain("scale", before), _plain("shift", after))
    notes = {key: text for key, text in network.notes.items() if key != NOTE}
    return replace(network, input=pixels, notes=notes)


def _picture(features: int) -> Shape:
    """Whose values in the order channel, y, x are a row of so many: square, grey or in colour."""
    for channels in (1, 3):
        side = math.isqrt(features // channels)
        if channels * side * side == features:
            return channels, side, side
    return features, 1, 1


def _plain(name: str, given: Numbers) -> float | tuple[float, ...]:
    try:
        numbers = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        numbers = np.empty((0, 0))
    if numbers.ndim > 1:
        raise TilewrightError(f"{name} is {given!r:.40}, not a number, nor one for each channel")
    return float(numbers) if numbers.ndim == 0 else tuple(numbers.tolist())
