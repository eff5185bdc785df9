"""A climb while it happens: rungs as they are proven, bars as rounds come in.

Drawn on standard error between turns, never while something is timed, and gone at the end. Where
nobody looks at a terminal, a line for each thing that was found.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from tilewright.terminal import printable
from tilewright.views import units
from tilewright.views.bars import Bars, medians
from tilewright.views.colours import BROKEN, COMPUTE
from tilewright.views.console import UPDATE_SECONDS, Screen
from tilewright.views.table import Marked, table

TIMING = "timing"  # what progress says of every turn, of the warm-up too

if TYPE_CHECKING:
    from tilewright.climb import Row
    from tilewright.truth.verify import Verdict


class Show:
    """What is known so far, as something to draw."""

    def __init__(self, draw: Callable[[], None]) -> None:
        self.rows: list[Row] = []
        self.seconds: dict[str, list[float]] = {}
        self.doing = ""
        self.draw, self.drawn = draw, 0.0

    def proven(self, row: Row) -> None:
        self.rows.append(row)
        self.rows.sort(key=lambda row: row.place)
        self.draw()

    def timed(self, name: str, seconds: float) -> None:
        self.seconds.setdefault(name, []).append(seconds)

    def progress(self, doing: str, done: int, of: int) -> None:
        self.doing = f"{doing} ({done} of {of})" if of > 1 else doing
        now = time.perf_counter()
        if now - self.drawn >= UPDATE_SECONDS:
            self.drawn = now
            self.draw()

    def _place(self, median: tuple[str, float]) -> int:
        """Of a bar: in the ladder's order, whichever came first in a round."""
        labels = [row.rung.label for row in self.rows]
        return next((i for i, label in enumerate(labels) if median[0].startswith(label)), -1)

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = []
        if self.rows and not self.seconds:
            rows = table("", "rung", "proof")
            for row in self.rows:
                rows.add_row(row.rung.label, words(row))
            parts.append(rows)
        if self.seconds:
            rounds = min(map(len, self.seconds.values()))
            title = f"medians of {units.plural(rounds, 'round')} so far, logarithmic"
            parts.append(Bars(title, sorted(medians(self.seconds), key=self._place)))
        return Group(*parts, Text(printable(self.doing), style="dim"))


class Lines(Show):
    """The same where there is no terminal: a line for each rung, and one when timing starts."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.started = time.perf_counter()

    def proven(self, row: Row) -> None:
        super().proven(row)
        self._say(f"{row.rung.label}: {words(row)}")

    def progress(self, doing: str, done: int, of: int) -> None:
        if doing.startswith(TIMING) and not self.doing.startswith(TIMING):
            self._say("timing in turns")
        super().progress(doing, done, of)

    def _say(self, line: str) -> None:
        seconds = time.perf_counter() - self.started
        print(f"[{seconds:6.1f} s] {printable(line)}", file=sys.stderr, flush=True)


@contextmanager
def watching() -> Iterator[Show]:
    """Whoever watches a climb, on standard error."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    console = Screen(file=sys.stderr, highlight=False, markup=False, emoji=False)
    # Without a thread that draws by itself: it would draw while something is timed.
    with Live(console=console, auto_refresh=False, transient=True) as live:
        show = Show(live.refresh)
        live.update(show)
        yield show


def words(row: Row) -> str:
    """What became of a rung's proof."""
    if row.verdict is None:
        return Marked(f"not here: {row.missing}", BROKEN)
    if not row.verdict.passed:
        return Marked(f"WRONG: {row.verdict.fault}", BROKEN)
    day = f" {row.verdict.proven}" if row.verdict.proven else ""
    return Marked(f"proven{day}: {proof(row.verdict)}", COMPUTE)


def proof(found: Verdict) -> str:
    """368 trials, 6.9 M outputs, worst 0.61 of its bound."""
    outputs = found.outputs
    many = f"{outputs / 1e6:.1f} M" if outputs >= 1e6 else units.count(outputs)
    trials = units.plural(found.trials, "trial")
    return f"{trials}, {many} outputs, worst {units.of_bound(found.worst)} of its bound"
