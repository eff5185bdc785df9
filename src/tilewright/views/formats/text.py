"""Tables for a terminal of 60 to 200 columns, or a pipe.

No number is ever cut: where a table is too wide, columns that can be spared go first, and what is
left is folded into several tables, each with the first column before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.bar import Bar
from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table as Grid
from rich.text import Text

from tilewright.terminal import printable
from tilewright.views.colours import BAR
from tilewright.views.table import Column, Marked, Table
from tilewright.views.units import Quantity

FOLDED = 14  # columns that words are broken to at most, where there is too little room
BAR_WIDTH = 12
WHOLE = 100.0  # per cent


def fitted(table: Table, width: int, bars: bool = False) -> Iterator[RenderableType]:
    """A table as one or several that fit; with bars where there is still room for them."""
    needed = [_least(table, place) for place in range(len(table.columns))]
    places, left_out = _spared(table.columns, needed, width)
    for number, chosen in enumerate(_chunks(places, needed, width)):
        if number:
            yield ""
        room = width - _width(chosen, [_widest(table, place) for place in range(len(needed))])
        bar = bars and room >= BAR_WIDTH + 2  # and what is between columns
        title = table.title if table.headed and number == 0 else ""
        yield _grid(table, chosen, title, bar, width)
    if left_out:
        yield Text(f"too narrow for: {', '.join(left_out)}", style="dim")


def _spared(
    columns: Sequence[Column], needed: Sequence[int], width: int
) -> tuple[list[int], list[str]]:
    """Columns that stay, and the names of those that had to go."""
    places = list(range(len(columns)))
    by_worth = sorted((place for place in places if columns[place].spare),
                      key=lambda place: (columns[place].spare, place))  # fmt: skip
    gone = []
    while by_worth and _width(places, needed) > width:
        place = by_worth.pop()
        places.remove(place)
        gone.append(columns[place].name)
    return places, gone[::-1]


def _chunks(places: list[int], needed: Sequence[int], width: int) -> Iterator[list[int]]:
    """As many columns as fit, then the first again with the next ones."""
    first, rest = places[0], places[1:]
    chosen = [first]
    for place in rest:
        if len(chosen) > 1 and _width([*chosen, place], needed) > width:
            yield chosen
            chosen = [first]
        chosen.append(place)
    yield chosen


def _width(places: Sequence[int], needed: Sequence[int]) -> int:
    return sum(needed[place] for place in places) + 2 * (len(places) - 1)


def _least(table: Table, place: int) -> int:
    """Room that a column must have: all of a number, a part of what can be folded."""
    widest = _widest(table, place)
    return widest if table.columns[place].kind != "text" else min(widest, FOLDED)


def _widest(table: Table, place: int) -> int:
    heading = table.columns[place].shown if table.headed else ""
    lines = [line for cell in (heading, *table.cells(place)) for line in cell.split("\n")]
    return max(cell_len(printable(line)) for line in lines)


def _grid(table: Table, places: Sequence[int], title: str, bar: bool, width: int) -> Grid:
    grid = Grid(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, show_header=table.headed,
    )  # fmt: skip
    shares = [place for place in places if bar and table.columns[place].kind == "share"][:1]
    for place in places:
        each = table.columns[place]
        number = each.kind != "text"
        grid.add_column(
            each.shown, justify="right" if number else "left", no_wrap=number, overflow="fold"
        )
        if place in shares:
            grid.add_column("", width=BAR_WIDTH, no_wrap=True)
    room = width if table.headed else width - _widest(table, 0) - 2
    for index, row in enumerate(table.rows):
        if index and index in table.rules:
            grid.add_section()
        cells: list[RenderableType] = []
        for place in places:
            cells.append(_cell(row[place] if table.headed else _at_commas(row[place], room)))
            if place in shares:
                summed = bool(table.rules) and index >= max(table.rules)
                cells.append("" if summed else _bar(row[place]))
        grid.add_row(*cells)
    return grid


def _at_commas(text: str, room: int) -> str:
    """A fact in lines that end at commas, as far as there is room for that."""
    lines: list[str] = []
    for part in text.split(", "):
        if lines and cell_len(f"{lines[-1]}, {part},") <= room:
            lines[-1] += f", {part}"
        else:
            lines.append(part)
    return ",\n".join(lines)


def _cell(cell: str) -> RenderableType:
    return Text(printable(cell), style=cell.style) if isinstance(cell, Marked) else str(cell)


def _bar(cell: str) -> RenderableType:
    if not isinstance(cell, Quantity):
        return ""
    return Bar(size=WHOLE, begin=0, end=min(WHOLE, max(0.0, cell.value)), width=BAR_WIDTH,
               color=BAR)  # fmt: skip
