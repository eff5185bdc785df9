"""Times as bars on a logarithmic scale: what differs by a thousand fits one screen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from tilewright.terminal import printable
from tilewright.views import units
from tilewright.views.colours import BAR, GOOD

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

EIGHTHS = "▏▎▍▌▋▊▉█"
WIDEST = 60
FASTEST = "fastest"


@dataclass(frozen=True)
class Bars:
    """Names with their seconds, the fewest marked. A factor of ten is as long anywhere."""

    title: str
    seconds: Sequence[tuple[str, float]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.title, style="bold")
        names = [printable(name) for name, _ in self.seconds]
        widest = max(map(cell_len, names), default=0)
        room = min(WIDEST, options.max_width - widest - len(f"  999 ms   {FASTEST}"))
        lengths = scaled([seconds for _, seconds in self.seconds], room)
        best = min((seconds for _, seconds in self.seconds), default=0.0)
        for name, length, (_, seconds) in zip(names, lengths, self.seconds, strict=True):
            marked = seconds == best
            line = Text(f"{name}{' ' * (widest - cell_len(name))}  {units.seconds(seconds):>7}  ")
            line.append(drawn(length), style=GOOD if marked else BAR)
            line.append(f" {FASTEST}" if marked else "", style=GOOD)
            line.no_wrap = True
            yield line


def scaled(seconds: Sequence[float], room: int) -> list[float]:
    """Lengths of bars: the longest fills the room, the shortest still shows."""
    known = [value for value in seconds if value > 0]
    if not known:
        return [0.0] * len(seconds)
    # A scale that starts a little below the fastest: 1 of its parts is for that one.
    low, high = math.log10(min(known)) - 0.2, math.log10(max(known))
    return [
        room * (math.log10(value) - low) / (high - low) if value > 0 else 0.0 for value in seconds
    ]


def drawn(length: float) -> str:
    """In eighths of a character."""
    whole, eighths = divmod(round(8 * max(0.0, length)), 8)
    return "█" * whole + (EIGHTHS[eighths - 1] if eighths else "")


def medians(samples: Mapping[str, Sequence[float]]) -> list[tuple[str, float]]:
    """Of what was timed so far."""
    return [(name, sorted(taken)[len(taken) // 2]) for name, taken in samples.items() if taken]
