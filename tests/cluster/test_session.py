"""Starting and ending a cluster, as far as that needs none."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

import tilewright
from tilewright.cli import main
from tilewright.cluster import session
from tilewright.errors import TilewrightError


class FakeRay:
    """Starts nothing, and takes SIGTERM for itself as Ray does."""

    def __init__(self, fails=False):
        self.fails, self.given, self.ended = fails, {}, 0
        self._private = self.worker = self  # where Ray keeps its module `_private.worker`

    def is_initialized(self):
        return False

    def init(self, **given):
        os.write(2, b"Ray is talking")
        signal.signal(signal.SIGTERM, lambda *some: sys.exit(1))
        self.given = given | {"usage": os.environ.get("RAY_USAGE_STATS_ENABLED")}
        if self.fails:
            raise ConnectionError("nobody\nis there")

    def shutdown(self):
        self.ended += 1

    def nodes(self):
        return [
            {"Alive": True, "Resources": {"CPU": 4.0, "GPU": 2.0}},
            {"Alive": True, "Resources": {"memory": 1e9}},  # a head that does no work
            {"Alive": False, "Resources": {"CPU": 64.0}},
        ]


@pytest.fixture
def fake(monkeypatch):
    made = FakeRay()
    monkeypatch.setattr(session, "versions", lambda: [("here", tilewright.__version__)])
    monkeypatch.setattr(session, "library", lambda: made)
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    return made


def test_without_ray_the_extra_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(TilewrightError, match=r"pip install 'tilewright\[cluster\]'"):
        tilewright.run(on="ray", images=1)
    assert main(["run", "--on", "ray", "--images", "1"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_cluster_is_quiet_and_nothing_is_left_of_it(fake, capfd):
    usual = signal.getsignal(signal.SIGTERM)
    with session.connected(None, 3):
        folder = Path(fake.given["_temp_dir"])
        assert folder.is_dir() and len(str(folder)) < 50
        assert signal.getsignal(signal.SIGTERM) is usual
    assert fake.given["usage"] == "0" and not fake.given["include_dashboard"]
    assert fake.given["num_cpus"] >= 3
    assert "RAY_USAGE_STATS_ENABLED" not in os.environ
    assert not folder.exists() and fake.ended == 1
    assert capfd.readouterr().err == ""


def test_also_when_the_work_fails(fake):
    with pytest.raises(KeyboardInterrupt), session.connected(None):
        raise KeyboardInterrupt
    assert not Path(fake.given["_temp_dir"]).exists() and fake.ended == 1


def test_an_address_where_nobody_is(fake):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with session.connected(address):
            assert fake.given["address"] == address
        fake.fails = True
        words = f"cannot work with the Ray cluster at {address}: nobody is there"
        with pytest.raises(TilewrightError, match=words), session.connected(address):
            pass
    words = f"no Ray cluster answers at {address}: .*refused"
    with pytest.raises(TilewrightError, match=words), session.connected(address):
        pass


@pytest.mark.parametrize(("version", "words"), [("0.0.9", "Tilewright 0.0.9"), (None, "no Til")])
def test_a_machine_with_another_tilewright_is_named(fake, monkeypatch, version, words):
    there = [("good", tilewright.__version__), ("bad", version)]
    monkeypatch.setattr(session, "versions", lambda: there)
    words = f"the Ray cluster at auto: bad has {words}.*same on all"
    with pytest.raises(TilewrightError, match=words), session.connected("auto"):
        pass
    assert fake.ended == 1
    with session.connected(None):  # of this machine's own: there is no other
        pass


def test_the_end_of_ray_s_pages_is_what_happened():
    pages = (
        "The actor died because of an error raised in its creation task, \x1b[36mray::A()\x1b[39m\n"
        "Traceback (most recent call last):\n  File ...\n"
        "ModuleNotFoundError: No module named 'numba'\n"
    )
    assert session.cause(pages) == "ModuleNotFoundError: No module named 'numba'"
    assert session.cause("\x1b[31mIts worker\nprocess has died.") == "Its worker process has died."
    assert len(session.cause("word " * 1000)) == 300


def test_a_machine_without_processors_has_no_room(fake):
    assert session.machines() == [(4, 2)]


def test_a_user_s_own_settings_stay(fake, monkeypatch):
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    with session.connected(None):
        assert fake.given["usage"] == "1"
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "1"
