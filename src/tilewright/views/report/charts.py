"""Charts by Vega-Altair, in one style. Colours and fonts come from the page, light or dark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import altair as alt

    from tilewright.views.report.blocks import Spec

Row = Mapping[str, object]
STEP = 26  # pixels of a row
MOST_POWERS = 5  # of ten, on a scale where what lies between them is named, too


def data(rows: Sequence[Row]) -> alt.InlineData:
    import altair as alt

    return alt.InlineData(values=[dict(row) for row in rows])


def spec(chart: alt.Chart | alt.LayerChart | alt.FacetChart, height: int) -> Spec:
    """A chart as wide as the page as plain data."""
    made: dict[str, object] = chart.properties(width="container", height=height).to_dict()
    made.pop("config", None)  # the page has its own
    return made


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
) -> Spec:
    """Bars that are cut into parts: a row has `rung`, `part`, `amount` and `place`, the part's."""
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
                "part:N", sort=list(parts), title=None,
                legend=alt.Legend(orient="top", columns=alt.ExprRef("width < 420 ? 3 : 8")),
            ),
            order=alt.Order("place:Q"),
            tooltip=told_of(told),
        )
    )  # fmt: skip
    return spec(made, height)
