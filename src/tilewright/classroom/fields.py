"""Values of a TOML file that people write by hand: every mistake is found, none ends the search."""

from __future__ import annotations

import datetime
import difflib
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tilewright.errors import SeveralLines, TilewrightError
from tilewright.files import check_file, reason

T = TypeVar("T")

LARGEST_FILE = 2**20  # bytes
YEARS = range(2000, 3000)
LONGEST_TEXT = 50_000  # characters of a task's text


class Mistakes(SeveralLines):
    """All that is wrong in some files, a line each."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))


def file_text(path: Path) -> str:
    """What a small file of text holds."""
    check_file(path)
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise TilewrightError(f"{path} has more than {LARGEST_FILE:,} bytes")
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TilewrightError(f"{path} is not UTF-8 text") from error
    except OSError as error:
        raise TilewrightError(f"cannot read {path}: {reason(error)}") from error


def one_line(text: str, longest: int) -> str | None:
    """What is wrong with a name that is shown on one line, if anything."""
    if not text.strip():
        return "it is empty"
    if len(text) > longest:
        return f"it has more than {longest} characters"
    return None if text.isprintable() else "it has characters that cannot be shown"


@dataclass
class Fields:
    """One table of a file. What is wrong goes into `mistakes`, with file and key, and the value
    that is missing is one that stands for it: nobody uses them if there are mistakes."""

    file: str
    values: Mapping[str, object]
    mistakes: list[str]
    inside: str = ""  # the table's name, with a point
    known: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path, name: str, mistakes: list[str]) -> Fields:
        try:
            return cls(name, tomllib.loads(file_text(path)), mistakes)
        except tomllib.TOMLDecodeError as error:
            mistakes.append(f"{name}: {error}")
        except TilewrightError as error:
            mistakes.append(str(error))
        return cls(name, {}, [])  # what follows from that need not be told

    def wrong(self, key: str, problem: str) -> None:
        self.mistakes.append(f"{self.file}: {self.inside}{key}: {problem}")

    def text(self, key: str, default: str | None = None, longest: int = 200) -> str:
        """On one line, unless it may be long."""
        found = self._value(key, str, "a text", default, "")
        problem = None if longest >= LONGEST_TEXT else one_line(found, longest)
        if key in self.values and (problem or len(found) > longest):
            self.wrong(key, problem or f"it has more than {longest:,} characters")
        return found

    def optional(self, key: str) -> str | None:
        return self.text(key, "") or None

    def choice(self, key: str, choices: Sequence[str], default: str) -> str:
        found = self.text(key, default)
        if found not in choices:
            near = difflib.get_close_matches(found, choices, n=1)
            hint = f": did you mean {near[0]!r}?" if near else f", not one of {', '.join(choices)}"
            self.wrong(key, f"{found!r:.60}{hint}")
        return found

    def whole(self, key: str, default: int | None, least: int, most: int) -> int:
        found = self._value(key, int, "a whole number", default, least)
        if key in self.values and not least <= found <= most:
            self.wrong(key, f"{found} is not from {least:,} to {most:,}")
        return found

    def texts(self, key: str) -> tuple[str, ...]:
        found: list[object] = self._value(key, list, "a list of texts", [], [])
        if not all(isinstance(each, str) for each in found):
            self.wrong(key, 'a list of texts is meant, as in ["a", "b"]')
        return tuple(str(each) for each in found)

    def moment(self, key: str) -> datetime.datetime | None:
        """With its zone: a deadline that depends on who reads it is none."""
        self.known.append(key)
        found = self.values.get(key, "")
        if not found:
            return None
        try:
            made = datetime.datetime.fromisoformat(str(found))
        except ValueError:
            self.wrong(key, f"{found!r:.60} is no date, as 2026-12-01T18:00:00+01:00 is one")
            return None
        if made.tzinfo is None:
            self.wrong(key, f"{made.isoformat()} has no zone, as +01:00 or Z at its end")
            return None
        if made.year not in YEARS:  # near the ends of the calendar there is no other zone
            self.wrong(key, f"{made.isoformat()} is in no year from {YEARS[0]} to {YEARS[-1]}")
            return None
        return made.astimezone(datetime.UTC)

    def table(self, key: str) -> Fields | None:
        if key not in self.values:
            self.known.append(key)
            return None
        found: Mapping[str, object] = self._value(key, dict, "a table", {}, {})
        return Fields(self.file, found, self.mistakes, f"{self.inside}{key}.")

    def accepted(self, key: str, made: Callable[[], T]) -> T | None:
        """What a value means, or None if it means nothing."""
        try:
            return made()
        except TilewrightError as error:
            self.wrong(key, str(error))
            return None

    def done(self) -> None:
        """Whatever else is there is a mistake: a key that nobody reads is a rule nobody keeps."""
        for key in self.values:
            if key not in self.known:
                near = difflib.get_close_matches(key, self.known, n=1)
                hint = f": did you mean {near[0]!r}?" if near else f"; {', '.join(self.known)} are"
                self.wrong(key[:60], f"no such key{hint}")

    def _value(self, key: str, kind: type[T], what: str, default: T | None, empty: T) -> T:
        self.known.append(key)
        found = self.values.get(key, default)
        if found is None:
            self.wrong(key, f"it is missing: {what}")
            return empty
        if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
            self.wrong(key, f"{what} is meant, not {found!r:.60}")
            return empty
        return found
