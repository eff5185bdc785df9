"""The fastest way through a network that is made of parts: the shortest path along its layers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tilewright.errors import TilewrightError

Choice = TypeVar("Choice")


@dataclass(frozen=True)
class Part(Generic[Choice]):
    """Layers from `first` up to, not including, `end`, computed in one step."""

    first: int
    end: int
    seconds: float
    choice: Choice


def cover(layers: int, parts: Iterable[Part[Choice]]) -> list[Part[Choice]]:
    """Parts that follow one another from the first layer to the last, in the least time."""
    best: list[tuple[float, list[Part[Choice]]] | None] = [(0.0, [])] + [None] * layers
    for part in sorted(parts, key=lambda each: each.first):
        before = best[part.first]
        if before is None:
            continue
        seconds = before[0] + part.seconds
        known = best[part.end]
        if known is None or seconds < known[0]:
            best[part.end] = seconds, [*before[1], part]
    reached = best[layers]
    if reached is None:
        far = max(place for place, found in enumerate(best) if found is not None)
        raise TilewrightError(f"no rung computes layer {far} of {layers}: nothing to choose from")
    return reached[1]
