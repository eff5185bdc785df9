"""The student's end: what `tilewright login` and `tilewright submit` say to a class's server.

The server may be restarted at any moment. What was handed in is kept there, so watching goes on
when it is back; a hand-in whose answer was lost is not repeated by itself.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import requests
from requests.auth import AuthBase

from tilewright.errors import TilewrightError
from tilewright.files import atomic_write, reason

CONNECT_SECONDS, ANSWER_SECONDS = 10.0, 60.0
SILENCE_SECONDS = 45.0  # the server says something every 15
PATIENCE_SECONDS = 300.0  # for a server that does not answer
LONGEST_ANSWER = 2**24  # bytes
HERE = {"localhost", "127.0.0.1", "::1"}

Facts = Mapping[str, object]


class Lost(TilewrightError):
    """The server cannot be reached, or went away: it may come back."""


def address(url: str) -> str:
    """The server's address as its tokens are kept under: scheme, host and port."""
    parts = urlsplit(url if "://" in url else f"https://{url}")
    if "://" not in url and parts.hostname in HERE:  # where a class is served without TLS
        parts = parts._replace(scheme="http")
    try:
        port = parts.port
    except ValueError as error:
        raise TilewrightError(f"{url} is no address of a server: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise TilewrightError(f"{url} is no address of a server: https://HOST[:PORT] is meant")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + ("" if port is None else f":{port}")


def in_the_clear(url: str) -> bool:
    """Whether anybody on the way can read what is sent."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname not in HERE


class Tokens:
    """Tokens by server, in a file that only its owner can read."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or _default_file()

    def of(self, url: str) -> str:
        token = self._read().get(url)
        if token is None:
            raise TilewrightError(f"no token for {url}: tilewright login {url}")
        return token

    def only(self) -> str:
        """The server, where there is just one."""
        known = list(self._read())
        if len(known) != 1:
            several = f"one of {', '.join(known)}" if known else "tilewright login URL comes first"
            raise TilewrightError(f"--to is needed: {several}")
        return known[0]

    def keep(self, url: str, token: str) -> None:
        kept = {**self._read(), url: token}
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise TilewrightError(f"cannot write {self.path}: {reason(error)}") from error
        with atomic_write(self.path, mode=0o600) as file:
            file.write(json.dumps(kept, indent=2).encode() + b"\n")

    def _read(self) -> dict[str, str]:
        try:
            kept = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise TilewrightError(f"cannot read {self.path}: {reason(error)}") from error
        except ValueError as error:
            raise TilewrightError(f"{self.path} is not a file of tokens: {error}") from error
        if not isinstance(kept, dict) or not all(isinstance(each, str) for each in kept.values()):
            raise TilewrightError(f"{self.path} is not a file of tokens")
        return kept


def _default_file() -> Path:
    import platformdirs

    return Path(platformdirs.user_config_dir("tilewright")) / "tokens.json"


class _Bearer(AuthBase):
    """As an object of its own: a password that lies in ~/.netrc must not take its place."""

    def __init__(self, token: str | None) -> None:
        self.token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self.token is not None:
            request.headers["Authorization"] = f"Bearer {self.token}"
        return request


class Client:
    """One server, and who we are there."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url, self.token = address(url), token

    def log_in(self, login: str, code: str, name: str, label: str) -> Facts:
        """A token, and who it is of; the code is a login code, or the class's invite code."""
        said = {"login": login, "code": code, "name": name, "label": label}
        return self._json("POST", "/api/tokens", data=said)

    def tasks(self) -> list[Facts]:
        return cast("list[Facts]", self._json("GET", "/api/tasks")["tasks"])

    def submit(self, task: str, files: Mapping[str, bytes], ranked: bool) -> Facts:
        """What was accepted: kept on the server's disk, and judged whatever happens to it."""
        parts = [("files", (name, content)) for name, content in files.items()]
        said = {"task": task, "ranked": "yes" if ranked else "no"}
        return self._json("POST", "/api/submissions", data=said, files=parts)

    def submission(self, number: int) -> Facts:
        return self._json("GET", f"/api/submissions/{number}")

    def file(self, number: int, name: str) -> bytes:
        with self._asked("GET", f"/api/submissions/{number}/files/{name}") as answer:
            return _body(answer)

    def watch(
        self,
        number: int,
        away: Callable[[str], None] = lambda reason: None,
        patience: float = PATIENCE_SECONDS,
        pause: float = 1.0,
    ) -> Iterator[Facts]:
        """The states of a submission, the last of them done. `away` is told when the server is
        gone; if it stays away for longer than `patience`, that is an error."""
        heard = time.monotonic()
        while True:
            try:
                for state in self._states(number):
                    heard = time.monotonic()
                    yield state
                    if state.get("state") == "done":
                        return
            except Lost as error:
                if time.monotonic() - heard > patience:
                    raise TilewrightError(
                        f"{error}; submission {number} is kept there: tilewright submit --to "
                        f"{self.url} --get {number} asks again"
                    ) from error
                away(str(error))
            time.sleep(pause)

    def _states(self, number: int) -> Iterator[Facts]:
        with self._asked(
            "GET", f"/api/submissions/{number}/events", silence=SILENCE_SECONDS
        ) as answer:
            try:
                for line in answer.iter_lines():
                    if line.startswith(b"data: "):
                        yield _facts(line.removeprefix(b"data: "), self.url)
            except requests.RequestException as error:
                raise Lost(f"{self.url} went away") from error

    def _json(
        self,
        method: str,
        path: str,
        data: Mapping[str, str] | None = None,
        files: Sequence[tuple[str, tuple[str, bytes]]] | None = None,
    ) -> Facts:
        with self._asked(method, path, data, files) as answer:
            return _facts(_body(answer), self.url)

    def _asked(
        self,
        method: str,
        path: str,
        data: Mapping[str, str] | None = None,
        files: Sequence[tuple[str, tuple[str, bytes]]] | None = None,
        silence: float = ANSWER_SECONDS,
    ) -> requests.Response:
        try:
            answer = requests.request(
                method, f"{self.url}{path}", data=data, files=files, auth=_Bearer(self.token),
                timeout=(CONNECT_SECONDS, silence), allow_redirects=False, stream=True,
            )  # fmt: skip
        except requests.exceptions.SSLError as error:
            raise TilewrightError(f"{self.url} has no certificate to trust: {error}") from error
        except requests.RequestException as error:
            raise Lost(f"{self.url} cannot be reached") from error
        if answer.status_code != 200:
            # A proxy before a server that is away, or a server whose disk is full.
            passes = answer.status_code in (502, 503, 504)
            raise (Lost if passes else TilewrightError)(f"{self.url}: {_complaint(answer)}")
        return answer


def _body(answer: requests.Response) -> bytes:
    """All of it, unless it is endless."""
    body = b""
    try:
        for part in answer.iter_content(2**16):
            body += part
            if len(body) > LONGEST_ANSWER:
                raise TilewrightError(f"the answer has more than {LONGEST_ANSWER:,} bytes")
    except requests.RequestException as error:
        raise Lost(f"{answer.url} went away") from error
    return body


def _facts(body: bytes, url: str) -> Facts:
    try:
        found = json.loads(body)
    except ValueError as error:
        raise TilewrightError(f"{url} is no server of a class: {error}") from error
    if not isinstance(found, dict):
        raise TilewrightError(f"{url} is no server of a class")
    return found


def _complaint(answer: requests.Response) -> str:
    try:
        return str(json.loads(_body(answer))["error"])
    except (ValueError, KeyError, TypeError):
        return f"it answered with status {answer.status_code}: is it a server of a class?"
