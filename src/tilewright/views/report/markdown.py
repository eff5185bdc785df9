"""A report as Markdown: the same sections, charts as the tables behind them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from tilewright import __version__
from tilewright.terminal import printable
from tilewright.views import table as tables
from tilewright.views.formats.markdown import document, escape
from tilewright.views.report.blocks import (
    Block,
    Chart,
    Code,
    Folded,
    Heading,
    Number,
    Page,
    Paragraph,
    Pictures,
    Table,
    Words,
)


def to_markdown(page: Page) -> str:
    return "\n\n".join(part for part in _parts(page) if part) + "\n"


def _parts(page: Page) -> Iterator[str]:
    yield f"# {escape(page.title)}"
    yield escape(page.lead)
    yield "\n".join(f"- {escape(name)}: {escape(value)}" for name, value in page.facts)
    for section in page.sections:
        yield f"## {escape(section.title)}"
        yield escape(section.reading)
        for block in section.blocks:
            yield _block(block)
    yield f"Made by Tilewright {__version__}."


def _block(block: Block) -> str:
    match block:
        case Paragraph():
            lead = f"**{escape(block.lead)}:** " if block.lead else ""
            return lead + escape(block.text) + (block.command and f" {_code(block.command)}")
        case Heading():
            return f"### {escape(block.text)}"
        case Table():
            return _table(block)
        case Chart():
            return f"**{escape(block.title)}**: {escape(block.summary)}\n\n{_table(block.table)}"
        case Code():
            return f"{escape(block.title)}:\n\n{_fenced(block.text)}"
        case Pictures():
            lines = [f"- {escape(each.caption)}" for each in block.pictures]
            return "\n".join([f"### {escape(block.caption)}", "", *lines])
        case Folded():
            return "\n\n".join([f"#### {escape(block.title)}", *map(_block, block.blocks)])
        case Words():
            return block.markdown
    assert_never(block)


def _code(text: str) -> str:
    """In a line; a blank on each side is not part of it."""
    fence, words = _fence(text, "`"), printable(" ".join(text.split()))
    return f"{fence} {words} {fence}" if "`" in words else f"{fence}{words}{fence}"


def _fenced(text: str) -> str:
    fence = _fence(text, "```")
    return f"{fence}text\n{text.rstrip()}\n{fence}"


def _fence(text: str, fence: str) -> str:
    """As many backticks as the text has nowhere."""
    while fence in text:
        fence += "`"
    return fence


def _table(made: Table) -> str:
    return document([plain(made)]).rstrip()


def plain(made: Table) -> tables.Table:
    """The table as all formats take it. Classes may share a name; columns may not."""
    names: list[str] = []
    for column in made.columns:
        name, number = " ".join(column.split()), 1
        while name in names:
            number += 1
            name = f"{' '.join(column.split())} ({number})"
        names.append(name)
    found = tables.table(made.caption, *names)
    for row in made.rows:
        # What was made by `units` still knows its number and unit.
        found.add_row(*(cell.text if isinstance(cell, Number) else cell for cell in row))
    return found
