"""The student's end, against the real server on a port."""

from __future__ import annotations

import json
import re
import stat
import threading

import pytest
import requests

from tests.classroom.made import KERNEL, right
from tests.classroom.web.conftest import INVITE
from tilewright.classroom.client import Client, Lost, Tokens, address, in_the_clear
from tilewright.errors import TilewrightError


@pytest.fixture
def anna(served):
    return Client(served.url, served.school.store.new_token("anna", "test"))


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("http://127.0.0.1:8765/", "http://127.0.0.1:8765"),
        ("https://Class.Test/tasks/first?x#y", "https://class.test"),
        ("class.test:8765", "https://class.test:8765"),
        ("127.0.0.1:8765", "http://127.0.0.1:8765"),
        ("https://anna:secret@class.test", "https://class.test"),
        ("http://[::1]:80", "http://[::1]:80"),
        ("localhost", "http://localhost"),
    ],
)
def test_an_address_is_scheme_host_and_port(given, meant):
    assert address(given) == meant


@pytest.mark.parametrize("given", ["", "ftp://a", "https://", "https://a:x", "https://a:99999999"])
def test_what_is_no_address_is_told(given):
    with pytest.raises(TilewrightError, match="is no address of a server"):
        address(given)


def test_what_is_sent_in_the_clear():
    assert in_the_clear("http://class.test") and not in_the_clear("https://class.test")
    assert not in_the_clear("http://localhost:8765") and not in_the_clear("http://[::1]:1")


def test_tokens_are_kept_for_their_owner_alone(tmp_path):
    tokens = Tokens(tmp_path / "new" / "tokens.json")
    with pytest.raises(TilewrightError, match="tilewright login https://a"):
        tokens.of("https://a")
    with pytest.raises(TilewrightError, match="tilewright login URL comes first"):
        tokens.only()
    tokens.keep("https://a", "one")
    tokens.keep("https://a", "two")
    assert tokens.of("https://a") == "two" and tokens.only() == "https://a"
    assert stat.S_IMODE(tokens.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(tokens.path.parent.stat().st_mode) == 0o700
    tokens.keep("https://b", "three")
    with pytest.raises(TilewrightError, match="one of https://a, https://b"):
        tokens.only()


@pytest.mark.parametrize("content", ["{", "[]", '{"a": 1}', "\xff"])
def test_a_broken_file_of_tokens_is_told(tmp_path, content):
    tokens = Tokens(tmp_path / "tokens.json")
    tokens.path.write_bytes(content.encode("latin-1"))
    with pytest.raises(TilewrightError, match="is not a file of tokens"):
        tokens.of("https://a")


def test_logging_in_gives_a_token_that_the_server_keeps_as_a_hash(served):
    school = served.school
    found = Client(served.url).log_in("anna", school.code("anna"), "", "a laptop")
    assert (found["login"], found["name"], found["code"]) == ("anna", "Anna A.", None)
    assert Client(served.url, found["token"]).tasks()[0]["name"] == "first"
    content = b"".join(each.read_bytes() for each in school.course.state.iterdir())
    assert found["token"].encode() not in content
    with pytest.raises(TilewrightError, match="no such login with this code"):
        Client(served.url).log_in("anna", "wrong", "", "")
    new = Client(served.url).log_in("carl", INVITE, "Carl", "a laptop")
    assert school.store.person_of_code("carl", new["code"]).name == "Carl"


def test_a_token_that_is_none_is_refused(served):
    for token in (None, "x", "ü".encode().decode("latin-1")):
        with pytest.raises(TilewrightError, match="no valid token: `tilewright login`"):
            Client(served.url, token).tasks()


def test_files_come_back_as_they_were(anna):
    files = {"mine.cl": bytes(range(1, 256)), "lib/tile (1).h": "// ü\r\n".encode()}
    number = anna.submit("first", files, ranked=False)["number"]
    state = anna.submission(number)
    assert (state["ranked"], state["state"], state["position"]) == (False, "waiting", 1)
    assert {name: anna.file(number, name) for name in state["files"]} == files
    with pytest.raises(TilewrightError, match="there is no such file"):
        anna.file(number, "other.cl")


def test_what_cannot_be_taken_is_told(anna):
    for files, words in (
        ({"mine.txt": b"x"}, "files end in"),
        ({"mine.cl": b"x" * 2**20 + b"x"}, "more than 1,048,576 bytes"),
        ({"mine.cl": b"\0"}, "is no text"),
        ({}, "there is no file"),
    ):
        with pytest.raises(TilewrightError, match=words):
            anna.submit("first", files, ranked=True)
    with pytest.raises(TilewrightError, match="there is no such task"):
        anna.submit("../first", KERNEL, ranked=True)


def test_watching_goes_on_when_the_server_comes_back(served, anna):
    school = served.school
    number = anna.submit("first", KERNEL, ranked=True)["number"]
    seen, lost = [], []
    stopping = threading.Thread(target=served.stop)

    def comes_back(reason: str) -> None:
        lost.append(reason)
        if len(lost) == 2:
            stopping.join()
            school.store.take("w1", {"opencl"})
            served.start()

    for state in anna.watch(number, comes_back, pause=0.01):
        seen.append(state["state"])
        if len(seen) == 1:
            stopping.start()
        elif seen[-1] == "judging":
            school.store.finish(number, "w1", right())
    assert seen[0] == "waiting" and seen[-2:] == ["judging", "done"] and len(lost) >= 2


def test_patience_ends(served, anna):
    number = anna.submit("first", KERNEL, ranked=True)["number"]
    served.stop()
    with pytest.raises(TilewrightError, match=f"--get {number} asks again") as raised:
        list(anna.watch(number, patience=0.05, pause=0.01))
    assert not isinstance(raised.value, Lost)


def test_a_hand_in_whose_answer_was_lost_is_an_error(served, anna):
    served.stop()
    with pytest.raises(Lost, match="cannot be reached"):
        anna.submit("first", KERNEL, ranked=True)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (200, b"<html>", "is no server of a class"),
        (200, b"[]", "is no server of a class"),
        (302, b"", "status 302"),
        (500, b'{"error": "no \\u001b[2J"}', "no"),
        (404, json.dumps({"error": {"a": 1}}).encode(), "'a': 1"),
        (503, b"", "it answered with status 503"),
        (503, b'{"error": "the disk is full"}', "the disk is full"),
    ],
)
def test_what_is_no_server_of_a_class_is_told(tmp_path, status, body, words):
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *given: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.handle_request, daemon=True).start()
        with pytest.raises(TilewrightError, match=words):
            Client(f"http://127.0.0.1:{other.server_port}", "token").submission(1)


def test_a_proxy_here_says_that_it_is_https(served):
    said = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.7"}
    answer = requests.get(f"{served.url}/login", headers=said, timeout=60)
    assert "__Host-tilewright=" in answer.headers["set-cookie"]
    assert "Secure" in answer.headers["set-cookie"] and "server" not in answer.headers
    token = re.search('name="csrf" value="(\\w+)"', answer.text)[1]
    # Its tries are counted for who asks, not for the proxy.
    secret = answer.headers["set-cookie"].partition(";")[0]
    form = {"csrf": token, "login": "anna", "code": "x"}
    answer = requests.post(
        f"{served.url}/login", data=form, headers={**said, "Cookie": secret}, timeout=60
    )
    assert answer.status_code == 403
    desk = served.server.config.app.state.desk
    assert set(desk.addresses._taken) == {"203.0.113.7"}
