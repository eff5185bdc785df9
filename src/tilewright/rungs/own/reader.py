"""A TOML table that knows where its keys stand, and complains at their lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.errors import unknown
from tilewright.rungs.own.expression import LARGEST, Expression, Place

TITLE = re.compile(r"\s*(\[\[?)\s*([\w.\"-]+)\s*\]\]?")
KEY = re.compile(r"\s*[\"']?([\w-]+)[\"']?\s*[=.]")
LONGEST_LINE = 200


@dataclass(frozen=True)
class Table:
    """The values of a table, and the line of each key; what is not found is at the first."""

    values: Mapping[str, object]
    file: str
    first: int
    lines: Mapping[tuple[str, int, str], int]  # by table, its number and key
    name: str = ""
    number: int = 0

    @classmethod
    def of(cls, values: Mapping[str, object], file: str, first: int, text: str) -> Table:
        """TOML's own reader forgets the lines: keys at the start of a line are looked up here."""
        lines: dict[tuple[str, int, str], int] = {}
        seen: dict[str, int] = {}
        name = ""
        for line, content in enumerate(text.split("\n"), first):
            if title := TITLE.match(content):
                name = title[2]
                seen[name] = seen.get(name, -1) + 1
                lines.setdefault((name, seen[name], ""), line)
                lines.setdefault(("", 0, name), line)
            elif key := KEY.match(content):
                lines.setdefault((name, seen.get(name, 0), key[1]), line)
        return cls(values, file, first, lines)

    def place(self, key: str) -> Place:
        start = self.lines.get((self.name, self.number, ""), self.first)
        return Place(self.file, self.lines.get((self.name, self.number, key), start), key)

    def inner(self, key: str, values: Mapping[str, object], number: int = 0) -> Table:
        return Table(values, self.file, self.first, self.lines, key, number)


@dataclass
class Reader:
    """Takes values from a table, each as what it must be; `finish` complains of the rest."""

    source: Table
    asked: set[str] = field(default_factory=set)

    @property
    def values(self) -> Mapping[str, object]:
        return self.source.values

    @property
    def start(self) -> Place:
        return self.source.place("")

    def place(self, key: str) -> Place:
        return self.source.place(key)

    @property
    def names(self) -> list[str]:
        return list(self.values)

    def finish(self) -> None:
        for key in self.values:
            if key not in self.asked:
                raise self.place(key).error(str(unknown("key", key, sorted(self.asked))))

    def _given(self, key: str) -> object:
        self.asked.add(key)
        return self.values.get(key)

    def optional(self, key: str) -> str | None:
        found = self._given(key)
        return None if found is None else self._line(key, found)

    def line(self, key: str, default: str) -> str:
        found = self.optional(key)
        return default if found is None else found

    def _line(self, key: str, found: object) -> str:
        if not isinstance(found, str) or not found.strip() or not found.isprintable():
            raise self.place(key).error("must be a line of text, in quotes")
        if len(found) > LONGEST_LINE:
            raise self.place(key).error(f"has more than {LONGEST_LINE} characters")
        return found.strip()

    def choice(self, key: str, known: tuple[str, ...], default: str) -> str:
        found = self.line(key, default)
        if found not in known:
            raise self.place(key).error(f"must be {' or '.join(known)}, not {found!r:.60}")
        return found

    def matching(self, key: str, form: re.Pattern[str], default: str | None, words: str) -> str:
        found = self.optional(key)
        if found is None and default is None:
            raise self.source.place(key).error("is missing")
        found = found if found is not None else str(default)
        if not form.fullmatch(found):
            raise self.place(key).error(f"must be {words}, not {found!r:.60}")
        return found

    def flag(self, key: str) -> bool:
        found = self._given(key)
        if found is not None and not isinstance(found, bool):
            raise self.place(key).error("must be true or false")
        return bool(found)

    def texts(self, key: str) -> list[tuple[str, Place]]:
        """A text, or a list of them."""
        found = self._given(key)
        several = [] if found is None else found if isinstance(found, list) else [found]
        return [(self._text(key, each), self.place(key)) for each in several]

    def _text(self, key: str, found: object) -> str:
        if not isinstance(found, str):
            raise self.place(key).error("must be an expression, in quotes")
        return found

    def words(self, key: str) -> tuple[str, ...]:
        found = self._given(key)
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise self.place(key).error('must be a list of names, as in ["x", "weight", "out"]')
        return tuple(found)

    def numbers(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers, or a range."""
        found = self._given(key)
        if isinstance(found, dict) and set(found) <= {"from", "to", "step"} and "to" in found:
            bounds = [found.get("from", 1), found["to"], found.get("step", 1)]
            if all(type(each) is int and 0 < each < LARGEST for each in bounds):
                found = list(range(bounds[0], min(bounds[1], bounds[0] + 10**6) + 1, bounds[2]))
        if (
            not isinstance(found, list)
            or not found
            or not all(type(each) is int and 0 <= each < 2**31 for each in found)
        ):
            raise self.place(key).error(
                "must be a list of whole numbers, as in [16, 8], or {from = 1, to = 8, step = 1}"
            )
        return tuple(dict.fromkeys(found))

    def expression(self, key: str, known: set[str], default: str | None = None) -> Expression:
        found = self._given(key)
        if found is None and default is not None:
            found = default
        return self._expression(key, found, known)

    def _expression(self, key: str, found: object, known: set[str]) -> Expression:
        if type(found) is not int and not isinstance(found, str):
            raise self.place(key).error("must be a whole number, or an expression in quotes")
        expression = Expression(str(found), self.place(key))
        expression.check_names(known)
        return expression

    def three(self, key: str, known: set[str]) -> tuple[Expression, Expression, Expression]:
        """One to three sizes, along x, y and z."""
        found = self._given(key)
        if not isinstance(found, list) or not 1 <= len(found) <= 3:
            raise self.place(key).error('must be a list of one to three sizes, as in [16, "TILE"]')
        x, y, z = (self._expression(key, each, known) for each in [*found, 1, 1][:3])
        return x, y, z

    def table(self, key: str) -> Reader:
        found = self._given(key)
        if not isinstance(found, dict | None):
            raise self.place(key).error(f"must be a table: [{key}], then its lines")
        return Reader(self.source.inner(key, found or {}))

    def tables(self, key: str) -> list[Reader]:
        found = self._given(key)
        several = [] if found is None else found
        if not isinstance(several, list) or not all(isinstance(each, dict) for each in several):
            raise self.place(key).error(f"must be a table of its own for each: [[{key}]]")
        return [Reader(self.source.inner(key, each, i)) for i, each in enumerate(several)]
