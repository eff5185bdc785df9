"""The pages in a real browser: Debian's Chromium through Playwright."""

from __future__ import annotations

import pytest

from tests.classroom.made import right
from tests.views.report.test_browser import CHROMIUM, PATIENCE
from tilewright.results.grade import Judged

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (apt install chromium)"),
    pytest.mark.xdist_group("browser"),
]
SOURCE = '</li></ol><script>document.title = "taken"</script><img src=x onerror=alert(1)>'
WIDTHS = 360, 1440
COLOURS = {
    "dark": ["rgb(227, 232, 236)", "rgb(20, 25, 31)"],
    "light": ["rgb(27, 39, 51)", "rgb(255, 255, 255)"],
}
CORRECT = {"100": 0.91, "1000": 0.9, "10000": 0.8765}


@pytest.fixture
def open_page(browser, served):
    """A page; whatever it complains of, or asks for elsewhere, is an error."""
    contexts, wrong = [], []

    def heard(words):
        if "ERR_CONNECTION_REFUSED" not in words:  # a server that is away, as tests have it
            wrong.append(words)

    def opened(path, scripts=True):
        context = browser.new_context(java_script_enabled=scripts)
        contexts.append(context)
        view = context.new_page()
        view.set_default_timeout(PATIENCE)
        view.on("console", lambda message: heard(message.text))
        view.on("pageerror", lambda error: wrong.append(str(error)))
        view.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
        view.on(
            "request",
            lambda asked: (
                None if asked.url.startswith((served.url, "data:")) else wrong.append(asked.url)
            ),
        )
        view.goto(served.url + path)
        return view

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


def log_in(view, school, login):
    view.fill("#login", login)
    view.fill("#code", school.code(login))
    view.click("button:has-text('Log in')")
    view.wait_for_selector("text=Log out")


def check_fit(view):
    """On a phone, and on a desk."""
    for width in WIDTHS:
        view.set_viewport_size({"width": width, "height": 900})
        assert view.evaluate("document.documentElement.scrollWidth") == width, view.url


def check_colours(view):
    for scheme, colours in COLOURS.items():
        view.emulate_media(color_scheme=scheme)
        style = "getComputedStyle(document.body)"
        assert view.evaluate(f"[{style}.color, {style}.backgroundColor]") == colours


def test_submit_watch_rank_and_log_out(open_page, served, tmp_path):
    school = served.school
    school.handed_in("ben", right(0.003))
    (tmp_path / "mine.cl").write_text(SOURCE)
    view = open_page("/tasks/first")
    check_fit(view)
    log_in(view, school, "anna")  # and is where she wanted to be
    check_fit(view)
    check_colours(view)
    ben = school.store.person("ben").pseudonym
    assert view.locator("#board tbody tr").all_inner_texts()[0].split("\t")[1] == ben
    view.set_input_files("#files", tmp_path / "mine.cl")
    view.click("button:has-text('Hand in')")
    view.wait_for_selector("text=Waiting: 1 in the queue")
    assert SOURCE in view.locator("ol.source").inner_text()
    check_fit(view)
    # From here on nothing is loaded but what the server says has changed.
    view.evaluate("window.same = true")
    number = school.store.take("w1", {"opencl"}).number
    view.wait_for_selector("text=Being judged")
    school.store.progress(number, "w1", "timing 3 of 9")
    view.wait_for_selector("text=Being judged: timing 3 of 9")
    judged = Judged(
        outcome="right", operations={"conv1": (0.001,) * 3}, baseline={"conv1": (0.002,) * 3},
        correct=CORRECT,
    )  # fmt: skip
    school.store.finish(number, "w1", judged)
    view.wait_for_selector("text=rank 1 of 2, 100 points: this is the best of yours")
    assert view.evaluate("window.same") and view.locator("svg.bar rect").count() == 2
    assert view.locator("text=0.8765").count() == 1
    check_fit(view)
    view.click("text=The first")
    view.wait_for_selector("#board tr.mine")
    first = view.locator("#board tbody tr").first.inner_text()
    assert first.split("\t")[:2] == ["1", "Anna A. (you)"]
    # Ben overtakes her while she looks.
    school.handed_in("ben", right(0.0005))
    view.wait_for_selector("#board tbody tr:first-child:has-text('500 µs')")
    view.goto(served.url + "/me")
    assert view.locator("svg.chart circle").count() == 1
    check_fit(view)
    view.set_viewport_size({"width": min(WIDTHS), "height": 900})
    box = view.locator("svg.chart").bounding_box()
    assert box["width"] > 250 and box["height"] > 150
    view.click("button:has-text('Log out')")
    view.wait_for_selector("#code")
    view.goto(served.url + "/me")
    assert view.url.endswith("/login?next=/me") and view.title() != "taken"


def test_a_teacher_without_scripts(open_page, served):
    school = served.school
    number = school.handed_in("anna", Judged(outcome="wrong", reason=SOURCE))
    school.handed_in("anna", right())
    school.handed_in("ben")
    view = open_page("/teacher", scripts=False)
    log_in(view, school, "tina")
    view.wait_for_selector("text=Queue: 1 not yet judged")
    view.locator("summary:has-text('3 submissions')").click()
    view.click(f"td ~ td >> xpath=ancestor::tr[th/a[@href='/submissions/{number}']]//button")
    view.wait_for_selector("text=Waiting: ")
    view.fill("#reason", "<b>copied</b>")
    view.click("button:has-text('Disqualify')")
    view.goto(f"{served.url}/submissions/{number}")
    assert view.locator("#reason").input_value() == "<b>copied</b>"


def test_watching_goes_on_when_the_server_comes_back(open_page, served):
    school = served.school
    number = school.handed_in("anna")
    view = open_page(f"/submissions/{number}")
    log_in(view, school, "anna")
    view.wait_for_selector("text=Waiting: 1 in the queue")
    served.stop()
    school.judge(right())
    served.start()
    view.wait_for_selector("text=this is the best of yours")
