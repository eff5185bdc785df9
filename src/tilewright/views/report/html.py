"""A report as one HTML file that opens from disk: nothing in it is fetched from anywhere.

Whatever comes from records is text: the template escapes it, data in scripts is in letters that
mean nothing to HTML, and the author's Markdown may hold neither HTML nor pictures from elsewhere.

Most of a long page would be figures: rows that several charts draw are there once, and what only
scripts read is compressed. Tables are plain, and need no script.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from functools import cache
from importlib.resources import files

from tilewright import __version__
from tilewright.errors import TilewrightError
from tilewright.views.report.blocks import Chart, Page, Spec

UNIT = re.compile(r"(\d) (?=(%|[mµ]?s|[kMG]?B|images?|FLOP|[GT]FLOP/s|[GT]B/s)\b|%)")
SORTED_BY = 7  # digits of numbers in tables that are sorted by; files of tables have all
MISSING = "a report needs charts: pip install 'tilewright[report]' ({})"


def needed() -> None:
    """Refuse before minutes of measuring what could not be drawn."""
    try:
        import altair  # noqa: F401
        import vl_convert  # noqa: F401
    except ImportError as error:
        raise TilewrightError(MISSING.format(error)) from error


def to_html(page: Page) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    loader = PackageLoader("tilewright.views.report", "")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, finalize=_glued
    )
    environment.filters["sortable"] = lambda value: f"{value:.{SORTED_BY}g}"
    charts: list[dict[str, Spec]] = []
    numbers = {}
    rows: dict[str, object] = {}
    for section in page.sections:
        for index, block in enumerate(section.blocks):
            if isinstance(block, Chart):
                numbers[index, section.id] = len(charts)
                charts.append({name: _apart(spec, rows) for name, spec in block.variants.items()})
    drawn = json.dumps({"charts": charts, "rows": rows}, separators=(",", ":"))
    html: str = environment.get_template("page.html").render(
        title=page.title, lead=page.lead, facts=page.facts, sections=page.sections,
        numbers=numbers, version=__version__, markdown=lambda text: Markup(rendered(text)),
        data=packed(page.data), charts=packed(drawn), library=packed(library()),
        style=Markup(_text("page.css")), script=Markup(_text("page.js")),
    )  # fmt: skip
    return html


def _apart(spec: Spec, rows: dict[str, object]) -> Spec:
    """A chart with the names of its rows, which go to `rows`: the same rows have the same name."""
    held = spec["datasets"]
    assert isinstance(held, dict)
    rows.update(held)
    return {**spec, "datasets": list(held)}


def packed(text: str) -> str:
    """Compressed, in base64; the same text gives the same."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _glued(value: object) -> object:
    """Text in which no line ends between a number and its unit; what is HTML stays as it is."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return UNIT.sub("\\1\u00a0", value)
    return value


def rendered(markdown: str) -> str:
    """The author's Markdown as HTML: tags in it are text, and nothing is fetched."""
    from markdown_it import MarkdownIt

    made: str = (
        MarkdownIt("commonmark", {"html": False}).enable("table").disable("image").render(markdown)
    )
    return made


@cache
def library() -> str:
    """Vega, Vega-Lite and vega-embed, with names of their own."""
    import vl_convert

    # Without a snippet it gives the three names to the window; its types do not know that.
    bundle = vl_convert.javascript_bundle(None)  # type: ignore[arg-type]
    return f"(() => {{\n{bundle}\n}})();"


def _text(name: str) -> str:
    return (files("tilewright.views.report") / name).read_text(encoding="utf-8")
