"""`tilewright login` and `submit` against the real server; `serve` as a process."""

from __future__ import annotations

import io
import queue
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.classroom.made import KERNEL, class_folder, right
from tests.classroom.web.conftest import INVITE
from tilewright.classroom.client import Client
from tilewright.cli import main
from tilewright.results.grade import Judged, Profile
from tilewright.views import submission

PATIENCE = 60  # seconds: the machine may be busy
WRONG = Judged(outcome="wrong", reason="border not tested: 220 of 2,860 outputs are wrong\n\x1b[2J")


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    Path("mine.cl").write_text('#include "tile.h"\n')
    Path("tile.h").write_text("// a tile\n")
    return tmp_path


@pytest.fixture
def logged_in(home, served, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{served.school.code('anna')}\n"))
    assert main(["login", served.url, "--login", "anna"]) == 0
    assert "you are Anna A. (anna)" in capsys.readouterr().out
    return served


@pytest.fixture
def heard(monkeypatch) -> queue.Queue[str]:
    """What whoever hands in is told, state by state."""
    told: queue.Queue[str] = queue.Queue()

    def said(state: submission.Facts) -> str:
        told.put(words := in_a_line(state))
        return words

    in_a_line = submission.said
    monkeypatch.setattr(submission, "said", said)
    return told


def judge_later(school, judged: Judged, heard: queue.Queue[str]) -> threading.Thread:
    """Whatever is handed in, with words on the way, each of which is heard before the next."""

    def work() -> None:
        while (taken := school.store.take("w1", {"opencl"})) is None:
            time.sleep(0.005)
        for step in range(4):
            words = f"timing {step} of 9"
            school.store.progress(taken.number, "w1", words)
            while words not in heard.get(timeout=PATIENCE):
                pass
        school.store.finish(taken.number, "w1", judged)

    made = threading.Thread(target=work)
    made.start()
    return made


def test_a_right_kernel_from_the_hand_in_to_the_verdict(logged_in, heard, capsys):
    school = logged_in.school
    found = msgspec.structs.replace(
        right(0.001, 0.002), cold={"conv1": (0.003,) * 3}, correct={"100": 0.91, "1000": 0.9},
        profile={"conv1": Profile(flops=1e9, share_of_peak=0.25)},
    )  # fmt: skip
    judged = judge_later(school, found, heard)
    assert main(["submit", "mine.cl", "--to", logged_in.url, "--task", "first"]) == 0
    judged.join()
    out, err = capsys.readouterr()
    assert f"accepted as submission 1: {logged_in.url}/submissions/1" in out
    # One line for each state, however many steps there were, as nobody watches a terminal.
    assert [line.partition(":")[0] for line in err.splitlines()][-2:] == ["being judged", "judged"]
    assert len(err.splitlines()) <= 3 and err.count("being judged") == 1
    assert re.search(r"^conv1 +1\.00 ms +2\.00 ms +2\.00x +3\.00 ms +25\.0 *$", out, re.MULTILINE)
    assert re.search(r"^all +1\.00 ms", out, re.MULTILINE)
    assert "correctness: 0.9100 of 100 images, 0.9000 of 1,000 images\n" in out
    assert "rank 1 of 1, 100 points: this is the best of yours\n" in out
    assert out.startswith("accepted") and "\nright: mine.cl\n" in out
    assert school.store.files(1) == {"mine.cl": b'#include "tile.h"\n', "tile.h": b"// a tile\n"}
    assert school.store.submission(1).ranked


def test_a_wrong_one_is_exit_code_1_and_steers_no_terminal(logged_in, heard, capsys):
    judged = judge_later(logged_in.school, WRONG, heard)
    assert main(["submit", "mine.cl", "--private"]) == 1  # one server, one task
    judged.join()
    out = capsys.readouterr().out
    assert "wrong: mine.cl (private)" in out and "border not tested" in out
    assert "\x1b" not in out and "\\x1b[2J" in out
    assert not logged_in.school.store.submission(1).ranked


def test_an_earlier_one_comes_back_with_its_verdict(logged_in, capsys):
    school = logged_in.school
    school.handed_in("anna", right(), {"a.cl": b"x", "lib/b.h": b"y"})
    assert main(["submit", "--get", "1"]) == 0
    assert "right: a.cl" in capsys.readouterr().out
    assert Path("submission-1/lib/b.h").read_bytes() == b"y"
    assert main(["submit", "--get", "1"]) == 2
    assert "is there already, and stays as it is" in capsys.readouterr().err
    assert main(["submit", "--get", "1", "--out", "again/there"]) == 0
    assert Path("again/there/a.cl").read_bytes() == b"x"


def test_another_s_cannot_be_had(logged_in, capsys):
    logged_in.school.handed_in("ben", right())
    assert main(["submit", "--get", "1"]) == 2
    assert "there is no such submission for you to see" in capsys.readouterr().err
    assert not Path("submission-1").exists()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["submit"], "name a file to hand in, or --get N"),
        (["submit", "mine.cl", "--get", "1"], "name a file to hand in, or --get N"),
        (["submit", "mine.cl", "--out", "there"], "--out belongs to --get"),
        (["submit", "none.cl"], "cannot read none.cl: No such file"),
        (["submit", "tile.h"], "one file that ends in .cl or .cu is meant"),
        (["submit", "mine.cl", "--task", "second"], "there is no such task"),
        (["submit", "mine.cl", "--to", "http://127.0.0.1:1"], "no token for http://127.0.0.1:1"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(logged_in, capsys, given, words):
    assert main(given) == 2
    err = capsys.readouterr().err
    assert words in err and err.count("\n") == 1
    assert logged_in.school.store.of_person("anna") == []


def test_the_token_is_its_owner_s_alone_and_new_people_come_by_invitation(
    home, served, monkeypatch, capsys
):
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"carl\n{INVITE}\n"))
    assert main(["login", served.url, "--name", "Carl C."]) == 0
    out = capsys.readouterr().out
    assert "you are Carl C. (carl)" in out and "your code to log in from now on" in out
    (kept,) = home.glob("config/tilewright/*")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    assert main(["login", served.url]) == 2
    assert "no login was given" in capsys.readouterr().err


def test_a_server_without_encryption_is_told(home, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("anna\ncode\n"))
    assert main(["login", "http://class.invalid"]) == 2
    err = capsys.readouterr().err
    assert "http://class.invalid is not encrypted" in err and "cannot be reached" in err


def processes_of(process: int) -> set[int]:
    """All that a process has started, and what those have."""
    found = set()
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found |= {child, *processes_of(child)}
    return found


def is_there(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@contextmanager
def serving(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server as a process of its own, and its address. Its processes end with it."""
    command = [sys.executable, "-m", "tilewright", "serve", "--class", str(folder), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        line = server.stdout.readline()
        try:
            yield server, re.search(r"Convolutions: (http://127\.0\.0\.1:\d+) ", line)[1]
        finally:
            server.kill()


def wait_for_the_end(processes: set[int]) -> None:
    while any(map(is_there, processes)):  # the system takes a moment
        time.sleep(0.01)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
def test_what_was_accepted_is_there_after_a_kill_and_workers_end_with_the_server(tmp_path, capsys):
    folder = class_folder(tmp_path / "class", more=f'invite = "{INVITE}"\n')
    with serving(folder) as (server, url):
        token = Client(url).log_in("carl", INVITE, "Carl", "")["token"]
        accepted = [Client(url, token).submit("first", KERNEL, True)["number"] for _ in range(5)]
        workers = processes_of(server.pid)
        server.kill()
    wait_for_the_end(workers)
    with serving(folder) as (server, url):
        client = Client(url, token)
        assert [client.submission(number)["files"] for number in accepted] == [["mine.cl"]] * 5
        assert main(["serve", "--class", str(folder), "--port", "0"]) == 2
        assert "has a server already" in capsys.readouterr().err
        workers = processes_of(server.pid)
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0 and workers
        assert "stopped: what waits is judged" in server.stdout.read()
        assert server.stderr.read() == ""
    wait_for_the_end(workers)


def test_serve_checks_the_class_and_the_port_first(tmp_path, capsys):
    folder = class_folder(tmp_path / "class", {"first": 'network = "nothing"\nbatch = "x"'})
    assert main(["serve", "--class", str(folder)]) == 2
    err = capsys.readouterr().err
    assert "tasks/first.toml: network" in err and "tasks/first.toml: batch" in err
    folder = class_folder(tmp_path / "other")
    assert main(["serve", "--class", str(folder), "--host", "203.0.113.1"]) == 2
    assert "cannot listen on 203.0.113.1 port 8765" in capsys.readouterr().err
    assert main(["serve", "--class", str(folder), "--port", "99999"]) == 2
    assert "is no port" in capsys.readouterr().err


def test_without_a_web_server_serve_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "tilewright.classroom.web.server")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", "--class", str(tmp_path)]) == 2
    assert "pip install 'tilewright[class]'" in capsys.readouterr().err
