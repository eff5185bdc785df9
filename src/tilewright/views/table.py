"""A table as plain data: named columns, rows of cells, rules between them.

Views fill tables, formats print them. A cell is text as people read it; a `Quantity` in it still
knows its number and unit, so that files get all digits (`tilewright.views.plain`). A `Marked` cell
has a colour on a terminal, a `Listed` one several numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from tilewright.views.units import Quantity

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

Kind = Literal["text", "number", "share"]
Format = Literal["text", "markdown", "latex", "csv", "json"]
FORMATS: tuple[Format, ...] = get_args(Format)
NOTHING = ("", "-")  # in a cell: there is no number


class Marked(str):
    """A cell with a colour: see `tilewright.views.colours`."""

    __slots__ = ("style",)
    style: str

    def __new__(cls, text: str, style: str) -> Marked:
        made = super().__new__(cls, text)
        made.style = style
        return made

    def __reduce__(self) -> tuple[type[Marked], tuple[str, str]]:
        return Marked, (str(self), self.style)


class Listed(str):
    """A fact of several numbers: a text as people read it, and each number by its name."""

    __slots__ = ("parts",)
    parts: tuple[tuple[str, Quantity], ...]

    def __new__(cls, text: str, parts: Sequence[tuple[str, Quantity]]) -> Listed:
        made = super().__new__(cls, text)
        made.parts = tuple(parts)
        return made

    def __reduce__(self) -> tuple[type[Listed], tuple[str, tuple[tuple[str, Quantity], ...]]]:
        return Listed, (str(self), self.parts)


@dataclass(frozen=True)
class Column:
    """`heading` may have two lines. Numbers and shares stand to the right, and shares of a whole
    have a bar beside them on a terminal. Where a terminal is narrow, columns with the largest
    `spare` go first, and none that has 0. `unit` is that of all its cells' texts, where these have
    none themselves; the numbers behind them may have another.
    """

    heading: str
    kind: Kind = "text"
    spare: int = 0
    unit: str = ""

    @property
    def shown(self) -> str:
        """The heading with the unit, in up to two lines."""
        if not self.unit:
            return self.heading
        return f"{self.heading}{', ' if chr(10) in self.heading else chr(10)}{self.unit}"

    @property
    def name(self) -> str:
        """The heading with the unit, in one line."""
        return " ".join(self.shown.split())


def column(spec: str | Column) -> Column:
    """A name alone is a column of text; with `>` before it of numbers, with `%` of shares."""
    if isinstance(spec, Column):
        return spec
    kinds: dict[str, Kind] = {">": "number", "%": "share"}
    kind = kinds.get(spec[:1])
    return Column(spec) if kind is None else Column(spec[1:], kind)


@dataclass
class Table:
    """`headed`: the title and the columns' names are shown; of a list of facts they would say
    nothing.
    """

    title: str
    columns: tuple[Column, ...]
    headed: bool = True
    rows: list[tuple[str, ...]] = field(default_factory=list)
    rules: set[int] = field(default_factory=set)  # rows with a rule above them

    def __post_init__(self) -> None:
        names = [each.name for each in self.columns]
        if doubled := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two columns are named {sorted(doubled)[0]!r}")

    def add_row(self, *cells: str) -> None:
        """Cells that are left out at the end are empty."""
        if len(cells) > len(self.columns):
            raise ValueError(f"{len(cells)} cells for {len(self.columns)} columns")
        self.rows.append((*cells, *[""] * (len(self.columns) - len(cells))))

    def add_section(self) -> None:
        """A rule before the next row."""
        self.rules.add(len(self.rows))

    def cells(self, place: int) -> list[str]:
        """Of one column."""
        return [row[place] for row in self.rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from tilewright.views.formats.text import fitted

        yield from fitted(self, options.max_width, bars=console.is_terminal)


def table(title: str, *columns: str | Column) -> Table:
    return Table(title, tuple(map(column, columns)))


def facts(title: str) -> Table:
    """Names and what is to be said of each, without a heading."""
    return Table(title, (Column("name"), Column("value")), headed=False)
