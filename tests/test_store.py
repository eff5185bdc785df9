"""The store on disk: found again, private, bounded, and done without."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tilewright.fuse.cpu import build
from tilewright.model.layers import FullyConnected, Pixels
from tilewright.model.network import Network
from tilewright.store import KINDS, Limits, Store, key_of, open_store
from tilewright.terminal import say_once

FEW = Limits(count=3, bytes=1000)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home" / "things", FEW)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_kept_is_found(store):
    assert store.read("a") is None
    assert store.entries() == []
    assert store.keep("a", b"content") is None
    assert store.keep("b", b"") is None
    assert (store.read("a"), store.read("b"), store.read("c")) == (b"content", b"", None)
    assert store.keep("a", b"other") is None
    assert store.read("a") == b"other"


def test_it_is_private_whatever_the_umask_says(store):
    usual = os.umask(0)
    try:
        store.keep("a", b"content")
    finally:
        os.umask(usual)
    assert [mode(path) for path in (store.folder.parent, store.folder)] == [0o700, 0o700]
    assert [mode(path) for path in store.entries()] == [0o600]
    assert store.read("a") == b"content"


@pytest.mark.parametrize(
    "damage", [lambda c: c[:-1], lambda c: c + b"x", lambda c: b"", lambda c: b"\0" + c[1:]]
)
def test_damage_is_noticed_and_repaired(store, damage):
    store.keep("a", b"content")
    (path,) = store.entries()
    path.write_bytes(damage(path.read_bytes()))
    assert store.read("a") is None
    store.keep("a", b"content")
    assert store.read("a") == b"content"


def test_a_thing_under_the_name_of_another_is_not_there(store):
    store.keep("a", b"content")
    (path,) = store.entries()
    path.rename(path.with_name("b.kept"))
    assert store.read("b") is None


@pytest.mark.parametrize("bits", [0o720, 0o702, 0o777])
def test_a_folder_that_others_can_write_is_not_used(store, bits, capsys):
    store.keep("a", b"content")
    store.folder.chmod(bits)
    say_once.cache_clear()
    assert store.read("a") is None
    assert "others can write to it" in (store.keep("b", b"content") or "")
    assert store.read("a") is None
    (line,) = capsys.readouterr().err.splitlines()  # once, not three times
    assert str(store.folder) in line
    assert "tilewright cache clear" in line
    store.folder.chmod(0o700)
    assert store.read("b") is None
    assert store.read("a") == b"content"


def test_a_file_that_others_can_write_is_not_there(store):
    store.keep("a", b"content")
    (path,) = store.entries()
    path.chmod(0o620)
    assert store.read("a") is None
    store.keep("a", b"content")
    assert store.read("a") == b"content"


def test_a_folder_of_another_user_is_not_used(store, monkeypatch, capsys):
    store.keep("a", b"content")
    say_once.cache_clear()
    monkeypatch.setattr(os, "geteuid", lambda: store.folder.stat().st_uid + 1)
    assert store.read("a") is None
    assert "belongs to another user" in (store.keep("b", b"content") or "")
    assert capsys.readouterr().err.count("belongs to another user") == 1


def test_a_link_or_a_pipe_is_not_there(store, tmp_path):
    store.keep("a", b"content")
    (path,) = store.entries()
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    os.mkfifo(store.folder / "b.kept")
    assert store.read("a") is None
    assert store.read("b") is None


def test_the_longest_unused_go(store):
    for number, key in enumerate("abc"):
        store.keep(key, key.encode())
        os.utime(store.folder / f"{key}.kept", (number, number))
    assert store.read("a") == b"a"  # which makes it the last used
    store.keep("d", b"d")
    assert [key for key in "abcd" if store.read(key)] == ["a", "c", "d"]


def test_bytes_are_bounded_too(store):
    for number, key in enumerate("ab"):
        store.keep(key, bytes(600))
        os.utime(store.folder / f"{key}.kept", (number, number))
    assert [path.stem for path in store.entries()] == ["b"]
    assert "more than the 1,000" in (store.keep("c", bytes(1001)) or "")


def test_where_nothing_can_be_written_nothing_is_lost(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        store = Store(folder, FEW)
        assert store.keep("a", b"content") is not None
        assert store.read("a") is None
        assert store.entries() == []

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    store = Store(tmp_path / "full", FEW)
    assert "No space left" in (store.keep("a", b"content") or "")
    assert list(store.folder.iterdir()) == []


def test_keys_depend_on_each_part():
    assert key_of("a", "b") == key_of("a", b"b")
    assert len({key_of("a", "b"), key_of("ab"), key_of("a\n", "b"), key_of("b", "a")}) == 4
    with pytest.raises(AssertionError):
        Store(Path("x"), FEW).read("../a")


def test_the_users_own_store(own_cache):
    for kind in KINDS:
        assert open_store(kind).folder == own_cache / "tilewright" / kind


def test_machine_code_that_others_could_have_written_is_never_loaded(tmp_path):
    network = Network("small", Pixels((1, 2, 2)), (FullyConnected(3),))
    folder = tmp_path / "compiled"
    build.compile_network(network, build.host(), folder)
    assert build.compile_network(network, build.host(), folder).from_cache
    folder.chmod(0o777)
    assert not build.compile_network(network, build.host(), folder).from_cache


def test_a_kind_with_many_things_is_looked_through_now_and_then(tmp_path):
    store = Store(tmp_path / "many", Limits(count=2, bytes=1000, between=4))
    counts = []
    for number in range(9):
        store.keep(f"a{number}", b"content")
        counts.append(len(store.entries()))
    assert counts == [1, 2, 3, 4, 2, 3, 4, 5, 2]
