"""The pages in a real browser: Debian's Chromium through Playwright."""

from __future__ import annotations

import shutil

import pytest

from tests.classroom.made import right
from tilewright.results.grade import Judged

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (apt install chromium)"),
    pytest.mark.xdist_group("browser"),
]
PATIENCE = 30_000  # ms: the machine may be busy
SOURCE = '</li></ol><script>document.title = "taken"</script><img src=x onerror=alert(1)>'
CORRECT = {"100": 0.91, "1000": 0.9, "10000": 0.8765}


@pytest.fixture(scope="module")
def chromium():
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def open_page(chromium, served):
    """A page of some width; whatever it complains of, or asks for elsewhere, is an error."""
    contexts, wrong = [], []

    def heard(words):
        if "ERR_CONNECTION_REFUSED" not in words:  # a server that is away, as tests have it
            wrong.append(words)

    def opened(path, width=1440, scheme="light", scripts=True):
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme,
            java_script_enabled=scripts,
        )  # fmt: skip
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


def fits(view, width):
    assert view.evaluate("document.documentElement.scrollWidth") == width, view.url


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1440, "light")])
def test_submit_watch_rank_and_log_out(open_page, served, tmp_path, width, scheme):
    school = served.school
    school.handed_in("ben", right(0.003))
    (tmp_path / "mine.cl").write_text(SOURCE)
    view = open_page("/tasks/first", width, scheme)
    fits(view, width)
    log_in(view, school, "anna")  # and is where she wanted to be
    fits(view, width)
    ben = school.store.person("ben").pseudonym
    assert view.locator("#board tbody tr").all_inner_texts()[0].split("\t")[1] == ben
    view.set_input_files("#files", tmp_path / "mine.cl")
    view.click("button:has-text('Hand in')")
    view.wait_for_selector("text=Waiting: 1 in the queue")
    assert SOURCE in view.locator("ol.source").inner_text()
    fits(view, width)
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
    fits(view, width)
    view.click("text=The first")
    view.wait_for_selector("#board tr.mine")
    first = view.locator("#board tbody tr").first.inner_text()
    assert first.split("\t")[:2] == ["1", "Anna A. (you)"]
    # Ben overtakes her while she looks.
    school.handed_in("ben", right(0.0005))
    view.wait_for_selector("#board tbody tr:first-child:has-text('500 µs')")
    view.goto(served.url + "/me")
    assert view.locator("svg.chart circle").count() == 1
    box = view.locator("svg.chart").bounding_box()
    assert box["width"] > 250 and box["height"] > 150
    fits(view, width)
    view.click("button:has-text('Log out')")
    view.wait_for_selector("#code")
    view.goto(served.url + "/me")
    assert view.url.endswith("/login?next=/me") and view.title() != "taken"
    ink, paper = view.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert (ink, paper) == {
        "light": ("rgb(27, 39, 51)", "rgb(255, 255, 255)"),
        "dark": ("rgb(227, 232, 236)", "rgb(20, 25, 31)"),
    }[scheme]


def test_a_teacher_without_scripts(open_page, served):
    school = served.school
    number = school.handed_in("anna", Judged(outcome="wrong", reason=SOURCE))
    school.handed_in("anna", right())
    school.handed_in("ben")
    view = open_page("/teacher", 360, scripts=False)
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
