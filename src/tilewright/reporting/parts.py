"""Parts of a report that were measured, in a folder beside the page until the page is written.

A report that was stopped, or killed, goes on where it was: a part is there as a whole or not at
all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.errors import TilewrightError
from tilewright.files import atomic_write, file_name
from tilewright.reporting.remaining import Expected, Remaining
from tilewright.reporting.wish import Wish
from tilewright.results import page
from tilewright.results.record import Record


@dataclass
class Parts:
    """`done` is told of each part that is ready, and how long the rest of them will take.
    `problems` are parts that could not be had, `ahead` those that are still to come, with the
    seconds that each is expected to take.
    """

    folder: Path
    done: Callable[[str], None] = lambda name: None
    problems: dict[str, str] = field(default_factory=dict)
    ahead: dict[str, Expected] = field(default_factory=dict)
    remaining: Remaining = field(default_factory=Remaining)

    def expect(self, wish: Wish, seconds: Mapping[str, float]) -> None:
        """What will be asked for next, by name; what is kept takes no time."""
        asked = {
            name: each for name, each in seconds.items() if not self._path(wish, name).exists()
        }
        on = str(wish.device)
        self.ahead |= {_whose(wish, name): Expected(each, on) for name, each in asked.items()}
        self.remaining.begin()

    def announce(self) -> None:
        """How much there is to do, before it begins."""
        if self.ahead:
            left = self.remaining.words(self.ahead.values())
            self.done(f"runs and profiles of each rung in turn{left}")

    def get(self, wish: Wish, name: str) -> tuple[Record, ...] | None:
        path = self._path(wish, name)
        return page.read(path) if path.exists() else None

    def put(self, wish: Wish, name: str, records: Sequence[Record]) -> tuple[Record, ...]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(self._path(wish, name)) as file:
            file.write(page.text(records).encode())
        self._tell(wish, name)
        return tuple(records)

    def _tell(self, wish: Wish, name: str, outcome: str = "") -> None:
        expected = self.ahead.pop(_whose(wish, name), None)
        if expected is not None:
            self.remaining.done(expected)
        left = self.remaining.words(self.ahead.values())
        self.done(f"{_whose(wish, name)}{outcome}{left}")

    def part(
        self, wish: Wish, name: str, make: Callable[[], Sequence[Record]]
    ) -> tuple[Record, ...]:
        """A part that is kept, or is made now; what cannot be had is a problem, and no end."""
        if (found := self.get(wish, name)) is not None:
            return found
        try:
            return self.put(wish, name, make())
        except TilewrightError as error:
            self.problems[_whose(wish, name)] = str(error)
            self._tell(wish, name, " could not be had")
            return ()

    def leave_out(self, wish: Wish, name: str, why: str) -> None:
        """A part that is not even begun."""
        self.ahead.pop(_whose(wish, name), None)
        self.problems[_whose(wish, name)] = why

    def remove(self) -> None:
        """All parts, when the page has them."""
        if self.folder.is_dir():
            for path in self.folder.glob("*.json"):
                path.unlink()
            if not any(self.folder.iterdir()):
                self.folder.rmdir()

    def _path(self, wish: Wish, name: str) -> Path:
        return self.folder / f"{wish.digest}-{file_name(name)}.json"


def _whose(wish: Wish, name: str) -> str:
    return f"{wish.net} on {wish.device}: {name}"
