"""What a report is made of, before it is HTML or Markdown: sections of blocks, plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Spec = Mapping[str, object]  # a chart in Vega-Lite's terms


@dataclass(frozen=True)
class Number:
    """A number as people read it, and its value, to sort by."""

    text: str
    value: float


Cell: TypeAlias = "str | Number"
NONE = "-"


@dataclass(frozen=True)
class Paragraph:
    """`lead` are the words that it begins with, to be found by; `command` ends it, to be typed."""

    text: str
    lead: str = ""
    command: str = ""


@dataclass(frozen=True)
class Heading:
    """Inside a section."""

    text: str


@dataclass(frozen=True)
class Table:
    """`caption` says of what. Columns named with a leading `>` are numbers."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Chart:
    """A picture in one or more variants to choose from, with what it shows as a table."""

    title: str
    summary: str  # what is to be seen, for those who do not see it
    variants: Mapping[str, Spec]
    table: Table
    height: int  # pixels, kept free until it is drawn


@dataclass(frozen=True)
class Code:
    title: str
    text: str


@dataclass(frozen=True)
class Picture:
    """A small PNG in base64."""

    png: str
    caption: str


@dataclass(frozen=True)
class Pictures:
    caption: str
    pictures: Sequence[Picture]


@dataclass(frozen=True)
class Folded:
    """What few will read, behind its title; printed it is open."""

    title: str
    blocks: Sequence[Paragraph | Table | Code]


@dataclass(frozen=True)
class Words:
    """A place for the author's own words: Markdown, under the name that the file beside has."""

    place: str
    markdown: str


Block: TypeAlias = "Paragraph | Heading | Table | Chart | Code | Pictures | Folded | Words"


@dataclass(frozen=True)
class Section:
    """`reading` says in a sentence how it is to be read."""

    id: str
    title: str
    reading: str
    blocks: Sequence[Block] = field(default=())


def tables(section: Section) -> Iterator[Table]:
    """Every table of a section, those behind charts too."""
    for block in section.blocks:
        if isinstance(block, Table):
            yield block
        elif isinstance(block, Chart):
            yield block.table
        elif isinstance(block, Folded):
            yield from (each for each in block.blocks if isinstance(each, Table))


@dataclass(frozen=True)
class Page:
    """`facts` are the few figures that stand on top; `data` is the records as JSON."""

    title: str
    lead: str
    facts: Sequence[tuple[str, str]]
    sections: Sequence[Section]
    data: str


def number(text: str, value: float | None) -> Cell:
    """A number, or the sign for none."""
    return NONE if value is None else Number(text, value)
