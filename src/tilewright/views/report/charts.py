"""Charts by Vega-Altair, in one style. Colours and fonts come from the page, light or dark:
`INK`, `SOFT` and `BRIGHT`, which is read on deep colours, are expressions that it gives values."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import altair as alt

    from tilewright.views.report.blocks import Spec

Row = Mapping[str, object]
STEP = 26  # pixels of a row
INK, SOFT, BRIGHT = "ink", "soft", "bright"
DIGITS = 9  # of numbers that are drawn: a clock has no more, and a page is to be small
SHORT = 12  # letters: two such names stand side by side on a phone
MOST_POWERS = 5  # of ten, on a scale where what lies between them is named, too


def data(rows: Sequence[Row]) -> alt.NamedData:
    """Rows by their name; `spec` puts them beside the chart. Altair would hold every value in them
    to its schema, which takes longer than all the rest."""
    import altair as alt

    return alt.NamedData(name=_name(rows))


def _name(rows: Sequence[Row]) -> str:
    """The same for the same rows, so that a page can have them once."""
    return hashlib.sha256(json.dumps([*map(dict, rows)]).encode()).hexdigest()[:16]


def spec(
    chart: alt.Chart | alt.LayerChart | alt.FacetChart, height: int, *drawn: Sequence[Row]
) -> Spec:
    """A chart as wide as the page as plain data, with the rows that it draws.

    Not held to Vega-Lite's schema, which took half of a page's time: tests do that.
    """
    wide = chart.properties(width="container", height=height)
    made: dict[str, object] = wide.to_dict(validate=False)
    made.pop("config", None)  # the page has its own
    made["datasets"] = {_name(rows): [_short(row) for row in rows] for rows in drawn}
    return made


def _short(row: Row) -> Row:
    return {
        name: float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
        for name, value in row.items()
    }


def log_axis(start: float, end: float) -> alt.Axis:
    """With a line and a label at 1, 2 and 5 of each power of ten: no more can be read."""
    import altair as alt

    powers = range(math.floor(math.log10(start)), math.ceil(math.log10(end)) + 1)
    every = [each * 10.0**power for power in powers for each in (1, 2, 5)]
    if len(powers) > MOST_POWERS:
        every = [10.0**power for power in powers]
    inside = [value for value in every if 0.999 * start <= value <= 1.001 * end]
    # Of more than it is told to expect, Vega would leave some out.
    return alt.Axis(values=inside, tickCount=len(inside), format=",~r")


def rows_height(rows: int) -> int:
    """Of a chart with a row for each of so many things."""
    return max(2, rows) * STEP


def legend(names: Sequence[str], columns: int = 8) -> alt.Legend:
    """Of these names, above a chart; on a phone in so few columns that none is cut off."""
    import altair as alt

    few = 2 if max(map(len, names), default=0) <= SHORT else 1
    wide = alt.ExprRef(f"width < 420 ? {few} : {columns}")
    return alt.Legend(orient="top", values=list(names), columns=wide)


def told_of(names: Sequence[str]) -> list[alt.Tooltip]:
    """What is told of a mark under the pointer. Channels are named by their classes, here and in
    other charts: for a text Altair searches its whole schema, which took half of a page's time."""
    import altair as alt

    return [alt.Tooltip(f"{name}:N") for name in names]


def stacked(
    rows: Sequence[Row],
    parts: Sequence[str],
    title: str,
    stack: str,
    told: Sequence[str],
    height: int,
    by: str = "part",
) -> Spec:
    """Bars that are cut into parts: a row has `rung`, `amount`, its part under the name that is
    `by`, and where that stands in `parts` as its `place`."""
    import altair as alt

    shares = stack == "normalize"
    made = (
        alt.Chart(data(rows))
        .mark_bar(height={"band": 0.7})
        .encode(
            y=alt.Y("rung:N", sort=None, title=None),
            x=alt.X(
                "sum(amount):Q", stack="normalize" if shares else "zero", title=title,
                axis=alt.Axis(format="%") if shares else alt.Axis(),
            ),
            color=alt.Color(
                f"{by}:N", sort=list(parts), title=None,
                legend=legend(parts),
            ),
            order=alt.Order(f"{by} place:Q"),
            tooltip=told_of(told),
        )
    )  # fmt: skip
    return spec(made, height, rows)
