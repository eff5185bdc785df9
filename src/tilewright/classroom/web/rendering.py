"""The templates of the pages. Whatever is put into them is text: names, sources, reasons."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tilewright.classroom.course import said
from tilewright.classroom.store import Submitted
from tilewright.classroom.web.drawing import seconds
from tilewright.terminal import printable
from tilewright.views import units
from tilewright.views.report.html import rendered


@cache
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_shown,
    )  # fmt: skip
    made.filters |= {
        "correct": lambda share: units.fixed(share, 4),
        "count": units.count,
        "digits": units.digits,
        "markdown": lambda text: Markup(rendered(text)),
        "moment": _moment,
        "plural": units.plural,
        "seconds": units.seconds,
        "share": units.share,
        "time": _time,
        "times": units.times,
    }
    return made


def _shown(value: object) -> object:
    """What would hide or turn text is spelled out; lines stay."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(value)
    return value


def _moment(moment: datetime) -> str:
    return said(moment)


def _time(submitted: Submitted) -> str:
    found = seconds(submitted)
    return "" if found is None else str(units.seconds(found))
