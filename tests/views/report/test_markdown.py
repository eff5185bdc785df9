"""A report as Markdown."""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from msgspec.structs import replace

from tests.views.report.made import answers, everything, kernels
from tilewright.views.report.blocks import Table, tables
from tilewright.views.report.markdown import plain, to_markdown
from tilewright.views.report.material import Material
from tilewright.views.report.page import page

HOSTILE = "</script><img src=x onerror=alert(2)> | `a` [b](c)"


def test_the_same_sections_with_every_table():
    made = page(Material(everything(), {"shared": "It **was** worth it."}))
    text = to_markdown(made)
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    assert re.findall("<h2>(.*?)</h2>", html) == [section.title for section in made.sections]
    assert html.count("<table>") == sum(1 for each in made.sections for _ in tables(each))
    assert "It **was** worth it." in text


def test_hostile_names_stay_text():
    records = (answers(network=HOSTILE, classes=(HOSTILE, "b")), kernels(network=HOSTILE))
    text = to_markdown(page(Material(records)))
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    assert "<img" not in html and "<script" not in html and "</script" not in html


def test_code_cannot_end_its_own_fence():
    source = "```\n# no heading\n"
    (kernel,) = kernels().kernels
    record = kernels(kernels=(replace(kernel, source=source),))
    html = MarkdownIt("commonmark").render(to_markdown(page(Material((record,)))))
    assert "<h1>no heading" not in html


def test_columns_of_the_same_name_are_told_apart():
    found = plain(Table("t", ("class", ">a", ">a", ">a"), [("a", "1", "2", "3")]))
    assert [column.name for column in found.columns] == ["class", "a", "a (2)", "a (3)"]
