"""The page in a real browser: Debian's Chromium through Playwright."""

from __future__ import annotations

import gzip
import json
import shutil

import pytest
from msgspec.structs import replace

from tests.kept import vega
from tests.views.report.made import everything, ladder, long
from tilewright.views.report import html
from tilewright.views.report.html import to_html
from tilewright.views.report.material import Material
from tilewright.views.report.page import page

pytest.importorskip("playwright", reason="Playwright is not installed")
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (apt install chromium)"),
    pytest.mark.xdist_group("browser"),
]
HOSTILE = "</script><img src=http://a.b onerror=alert(2)>"
DRAWN = (
    "[...document.querySelectorAll('figure[data-chart]')].every(f => f.dataset.state == 'drawn')"
)
CUT_OFF = """[...document.querySelectorAll(
  '.role-legend-label text, #ladder .mark-text text')].filter((text) => {
  const edge = text.closest('svg').getBoundingClientRect().right;
  return text.getBoundingClientRect().right > edge + 1;
}).map((text) => text.textContent)"""
INKS = "[...new Set([...document.querySelectorAll('svg .role-axis-label text')].map((text) => \
text.getAttribute('fill')))].sort()"
BEYOND_THE_PAPER = """[...document.querySelectorAll('table, pre')].filter(
  (each) => each.getBoundingClientRect().right > innerWidth).map((each) => each.textContent)"""
CHARTS = 7
PATIENCE = 30_000  # ms: the machine may be busy


@pytest.fixture(scope="module", autouse=True)
def _kept_vega():
    with pytest.MonkeyPatch.context() as patch:
        made = vega()
        patch.setattr(html, "library", lambda: made)
        yield


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Every kind of chart, and of two networks where they are in one section."""
    records = (ladder(), *everything(network=HOSTILE))
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(to_html(page(Material(records))), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def long_address(tmp_path_factory):
    """25 rungs of three networks, as the course wants them."""
    records = tuple(each for name in ("a", "b", "c") for each in long(25, name))
    path = tmp_path_factory.mktemp("long") / "report.html"
    path.write_text(to_html(page(Material(records), as_milestone=True)), encoding="utf-8")
    assert path.stat().st_size < 5_000_000
    return path.as_uri()


@pytest.fixture(scope="module")
def window(browser):
    """One for all pages: a new one takes longer than a page."""
    made = browser.new_context()
    yield made
    made.close()


@pytest.fixture
def open_page(window, address):
    """A page of some width; whatever it complains of or asks for is an error."""
    pages, wrong = [], []

    def opened(width=1440, scheme="light", part="#all", address=address, before=""):
        view = window.new_page()
        pages.append(view)
        view.set_viewport_size({"width": width, "height": 900})
        view.emulate_media(color_scheme=scheme)
        view.set_default_timeout(PATIENCE)
        view.add_init_script(before)
        view.on("console", lambda message: wrong.append(message.text))
        view.on("pageerror", lambda error: wrong.append(str(error)))
        view.on(
            "request",
            lambda asked: (
                wrong.append(asked.url)
                if not asked.url.startswith(("file:", "data:", "blob:"))
                else None
            ),
        )
        view.goto(address + part)
        return view

    yield opened
    for view in pages:
        view.close()
    assert wrong == []


def check_drawn(view, width, scheme):
    """All charts, inside the page, in colours that can be read."""
    view.wait_for_function(DRAWN)
    figures = view.locator("figure[data-chart]")
    assert figures.count() >= CHARTS
    assert view.locator("figure .drawing svg, figure .drawing canvas").count() >= figures.count()
    assert view.evaluate("document.documentElement.scrollWidth") == width
    assert view.evaluate(CUT_OFF) == []
    view.locator("#layers .drawing .mark-rect path").first.hover()
    told = view.locator("#vg-tooltip-element.visible").bounding_box()
    assert told["x"] >= 0 and told["x"] + told["width"] <= width
    ink, paper = view.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert (ink, paper) == {
        "light": ("rgb(27, 39, 51)", "rgb(255, 255, 255)"),
        "dark": ("rgb(227, 232, 236)", "rgb(20, 25, 31)"),
    }[scheme]


def test_charts_are_drawn_and_nothing_sticks_out_on_a_phone(open_page):
    check_drawn(open_page(360, "dark"), 360, "dark")


def test_no_time_is_cut_off_beside_long_names_on_a_phone(open_page, tmp_path):
    rows = tuple(replace(row, rung=f"{row.rung} with a long name") for row in ladder().rows)
    path = tmp_path / "report.html"
    path.write_text(to_html(page(Material((replace(ladder(), rows=rows),)))), encoding="utf-8")
    view = open_page(360, address=path.as_uri())
    view.wait_for_function(DRAWN)
    assert view.locator("#ladder .mark-text text").count() > len(rows)
    assert view.evaluate(CUT_OFF) == []


def test_charts_are_drawn_when_they_come_near_and_can_be_sorted_toggled_and_downloaded(open_page):
    view = open_page(1440, "light", part="")
    view.wait_for_function("document.querySelector('figure').dataset.state == 'drawn'")
    last = view.locator("figure[data-chart]").last
    assert last.get_attribute("data-state") is None
    table = view.locator("#ladder figure table").first
    view.locator("#ladder figure summary", has_text="As a table").first.click()
    head = table.locator("th button", has_text="network, ms")
    firsts = lambda: table.locator("tbody th").all_text_contents()  # noqa: E731
    assert firsts() == ["direct", "shared", "step2", "torch"]
    head.click()
    assert firsts()[0] == "step2"
    head.click()
    assert firsts()[-1] == "step2"
    assert table.locator("th[aria-sort=descending]").count() == 1
    figure = view.locator("#ladder figure").first
    before = figure.locator(".drawing svg.marks").inner_html()
    figure.locator("button", has_text="linear").click()
    view.wait_for_function("document.querySelector('figure').dataset.state == 'drawn'")
    assert figure.locator("button[aria-pressed=true]").all_text_contents() == ["linear"]
    assert figure.locator(".drawing svg.marks").inner_html() != before
    with view.expect_download() as waiting:
        view.locator("#download").click()
    records = json.loads(waiting.value.path().read_text())["records"]
    assert HOSTILE in {record["network"] for record in records}
    last.scroll_into_view_if_needed()
    view.wait_for_function(
        "[...document.querySelectorAll('figure[data-chart]')].at(-1).dataset.state == 'drawn'"
    )
    for figure in view.locator("figure[data-chart]").all():
        figure.scroll_into_view_if_needed()
    check_drawn(view, 1440, "light")


def test_what_a_browser_cannot_unpack_it_says_and_gives_as_it_is(open_page):
    view = open_page(before="delete window.DecompressionStream")
    assert view.locator("figure .drawing", has_text="too old").count() >= CHARTS
    with view.expect_download() as waiting:
        view.locator("#download", has_text="cannot unpack").click()
    assert waiting.value.suggested_filename == "tilewright-report.json.gz"
    assert json.loads(gzip.decompress(waiting.value.path().read_bytes()))["records"]


def test_what_is_folded_is_open_on_paper_and_folded_again(open_page):
    """And charts are dark on white, whatever the screen was."""
    view = open_page(scheme="dark", part="")
    count = view.locator("details.fold").count()
    assert count >= 4
    assert view.locator("details.fold[open]").count() == 0
    view.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert view.locator("details.fold[open]").count() == count
    view.wait_for_function(DRAWN)
    assert view.evaluate(INKS) == ["#1b2733", "#55636f"]
    view.emulate_media(media="print")
    # A4 within its margins: what scrolls on a screen would be cut off there.
    view.set_viewport_size({"width": 690, "height": 976})
    assert view.evaluate(BEYOND_THE_PAPER) == []
    assert view.locator("nav").is_hidden()
    assert view.locator("details.fold table").first.is_visible()
    view.evaluate("dispatchEvent(new Event('afterprint'))")
    assert view.locator("details.fold[open]").count() == 0


def test_a_long_page_opens_and_goes_to_its_end(open_page, long_address):
    view = open_page(360, "dark", "", long_address)
    assert view.locator("section h2").first.text_content().startswith("1. ")
    view.locator("section h2").last.scroll_into_view_if_needed()
    assert view.evaluate("document.documentElement.scrollWidth") == 360
    view.wait_for_function(
        "[...document.querySelectorAll('figure')].every(f => f.dataset.state != 'drawing')"
    )
