from __future__ import annotations

import errno
import shutil
import stat
from pathlib import Path

import numpy as np

import tilewright
from tilewright.cli import main
from tilewright.files import cache_home
from tilewright.store import open_store


def test_show_and_clear(capsys):
    assert main(["cache"]) == 0
    assert "compiled kernels: 0 files, 0 B" in capsys.readouterr().out
    layers = [{"type": "fully_connected", "outputs": 1}]
    described = {"name": "small", "input": {"shape": [1, 2, 2]}, "layers": layers}
    weights = {"fc.weight": np.ones((1, 4)), "fc.bias": np.zeros(1)}
    tilewright.compile(tilewright.load(described, weights))
    assert main(["cache"]) == 0
    assert "compiled kernels: 2 files" in capsys.readouterr().out
    assert main(["cache", "clear"]) == 0
    text = capsys.readouterr().out
    assert "compiled kernels: deleted 2 files" in text
    assert "measured ceilings: deleted 0 files" in text
    assert not list(open_store("compiled").folder.iterdir())
    assert main(["cache", "burn"]) == 2


def test_everything_below_the_folder_is_shown_and_all_but_data_cleared(capsys):
    home = cache_home()
    shown = {
        "compiled/a.kept": "compiled kernels: 1 file, 10 B",
        "ceilings/a.kept": "measured ceilings: 1 file, 10 B",
        "pocl/found": "findings about PoCL: 1 file, 10 B",
        "pocl-kernels/a/b/c.so": "files of PoCL's compiler: 1 file, 10 B",
        "numba/deep/.x.nbi": "files of Numba's compiler: 1 file, 10 B",
        "data/cifar10/data_batch_1.bin": "fetched data: 1 file, 10 B",
        "forgotten": "something else: 1 file, 10 B",
    }
    for name in shown:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(bytes(10))
    assert main(["cache"]) == 0
    text = capsys.readouterr().out
    for words in shown.values():
        assert words in text
    assert main(["cache", "clear"]) == 0
    left = [str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()]
    assert sorted(left) == ["data/cifar10/data_batch_1.bin", "forgotten"]


def test_clearing_makes_a_folder_that_others_could_write_ones_own_again(capsys):
    store = open_store("compiled")
    store.folder.mkdir(parents=True)
    (store.folder / "evil.kept").write_bytes(b"evil")
    store.folder.chmod(0o777)
    assert store.keep("a", b"content") is not None
    assert main(["cache", "clear"]) == 0
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700
    assert store.keep("a", b"content") is None
    assert store.read("a") == b"content"


def test_a_link_inside_is_deleted_and_not_what_it_leads_to(tmp_path):
    folder = cache_home() / "numba"
    folder.mkdir(parents=True)
    (tmp_path / "precious").write_text("")
    (folder / "link").symlink_to(tmp_path)
    assert main(["cache", "clear"]) == 0
    assert not list(folder.iterdir())
    assert (tmp_path / "precious").exists()


def test_a_cache_that_cannot_be_written_is_one_line(monkeypatch, capsys):
    folder = cache_home() / "pocl-kernels"
    (folder / "a").mkdir(parents=True)

    def refuse(path: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(shutil, "rmtree", refuse)
    assert main(["cache", "clear"]) == 2
    error = capsys.readouterr().err
    assert error == f"tilewright: cannot clear {folder}: Read-only file system\n"
