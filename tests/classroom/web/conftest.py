"""A class with its real store, and people who visit it through Starlette's test client."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="needs pip install 'tilewright[class]'")

from httpx import Response
from starlette.applications import Starlette
from starlette.testclient import TestClient

from tests.classroom.made import KERNEL, NOW, class_folder, right
from tilewright.classroom.course import Course, read_course
from tilewright.classroom.store import Store, store_of
from tilewright.classroom.web import live
from tilewright.classroom.web.app import application
from tilewright.classroom.web.server import Server, server_of
from tilewright.results.grade import Judged

TOKEN = re.compile(r'name="csrf" value="(\w+)"')
INVITE = "open sesame"


@dataclass
class Visitor:
    """A browser of somebody's; `post` sends the token of the page that the form was on."""

    client: TestClient

    def get(self, path: str, **settings: object) -> Response:
        return self.client.get(path, follow_redirects=False, **settings)

    def token(self, path: str) -> str:
        return TOKEN.search(self.get(path).text)[1]

    def post(
        self, path: str, data: dict[str, str] | None = None, page: str = "/me", **more
    ) -> Response:
        data = {"csrf": self.token(page), **(data or {})}
        return self.client.post(path, data=data, follow_redirects=False, **more)

    def log_in(self, login: str, code: str, **more: str) -> Response:
        return self.post("/login", {"login": login, "code": code, **more}, "/login")


@dataclass
class School:
    """Anna and Ben are students, Tina teaches."""

    course: Course
    store: Store
    app: Starlette
    codes: dict[str, str] = field(default_factory=dict)
    clients: list[TestClient] = field(default_factory=list)

    def visitor(self, url: str = "http://class.test", may_fail: bool = False) -> Visitor:
        return Visitor(self._client(url, may_fail))

    def _client(self, url: str = "http://class.test", may_fail: bool = False) -> TestClient:
        client = TestClient(self.app, base_url=url, raise_server_exceptions=not may_fail)
        self.clients.append(client.__enter__())
        return client

    def code(self, login: str) -> str:
        if login not in self.codes:
            self.codes[login] = self.store.new_code(login)
        return self.codes[login]

    def browser(self, login: str, may_fail: bool = False) -> Visitor:
        """Somebody's, logged in; mistakes of the server are the test's, unless it `may_fail`."""
        visitor = self.visitor(may_fail=may_fail)
        assert visitor.log_in(login, self.code(login)).status_code == 303
        return visitor

    def program(self, login: str) -> TestClient:
        """With a token of somebody's."""
        client = self._client()
        client.headers["Authorization"] = f"Bearer {self.store.new_token(login, 'test')}"
        return client

    def handed_in(
        self, login: str, judged: Judged | None = None, files: dict[str, bytes] = KERNEL, **more
    ) -> int:
        """A submission, judged if it is said how."""
        task = self.course.tasks[more.pop("task", "first")]
        number = self.store.hand_in(login, task, files, more.pop("ranked", True), NOW)
        if judged is not None:
            self.judge(judged)
        return number

    def judge(self, judged: Judged | None = None) -> None:
        """The next that waits."""
        taken = self.store.take("w1", {"opencl"})
        assert taken is not None
        assert self.store.finish(taken.number, "w1", judged or right())


class Served:
    """A class on a port of its own, from a thread of the test; it can be ended and begun again."""

    def __init__(self, school: School) -> None:
        self.school, self.port = school, 0
        self.server: Server | None = None
        self.thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        listening = socket.create_server(("127.0.0.1", self.port))
        self.port = listening.getsockname()[1]
        self.server = server_of(self.school.course, self.school.store)
        self.thread = threading.Thread(target=self.server.run, args=([listening],), daemon=True)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.005)

    def stop(self) -> None:
        if self.server is not None and self.thread is not None:
            self.server.should_exit = True
            self.thread.join()
            self.server = None


@pytest.fixture
def make_school(tmp_path: Path) -> Iterator[Callable[..., School]]:
    made: list[School] = []

    def make(more: str = f'invite = "{INVITE}"\n', **settings) -> School:
        folder = class_folder(tmp_path / f"class{len(made)}", settings.get("tasks"), more)
        if "names" in settings:
            file = folder / "class.toml"
            file.write_text(file.read_text().replace('"pseudonyms"', f'"{settings["names"]}"'))
        for name, content in settings.get("files", {}).items():
            (folder / name).write_text(content)
        course = read_course(folder)
        store = store_of(course)
        made.append(School(course, store, application(course, store)))
        return made[-1]

    yield make
    for school in made:
        for client in school.clients:
            client.__exit__()


@pytest.fixture
def school(make_school: Callable[..., School]) -> School:
    return make_school()


@pytest.fixture
def served(school: School, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(live, "LOOK_SECONDS", 0.01)
    made = Served(school)
    made.start()
    yield made
    made.stop()
