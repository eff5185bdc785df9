from __future__ import annotations

import numpy as np

from tests.data.test_cifar10 import records
from tests.data.test_fetch import CONTENT, download, server  # noqa: F401
from tilewright.cli import main
from tilewright.data import catalogue, fetch


def test_the_list_says_what_is_here_and_how_to_get_the_rest(capsys):
    assert main(["data"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "shipped with Tilewright" in text
    assert "tilewright data fetch" in text


def test_check_a_name_and_a_path(tmp_path, capsys):
    assert main(["data", "check", "fashion-mnist-sample"]) == 0
    assert "1,000 images of 1x28x28, uint8 pixels" in capsys.readouterr().out
    records(20).tofile(tmp_path / "test_batch.bin")
    assert main(["data", "check", str(tmp_path)]) == 0
    assert "20 images of 3x32x32" in capsys.readouterr().out
    np.savez(tmp_path / "a.npz", images=np.zeros((2, 1, 4, 4), np.float32))
    assert main(["data", "check", str(tmp_path / "a.npz")]) == 0
    assert "no labels" in capsys.readouterr().out
    (tmp_path / "test_batch.bin").write_bytes(b"x" * 3074)
    assert main(["data", "check", str(tmp_path)]) == 2


def test_fetch_puts_a_set_where_it_is_found(server, monkeypatch, capsys):  # noqa: F811
    monkeypatch.setitem(fetch.DOWNLOADS, "cifar10", (download(server, "a.gz", CONTENT),))
    assert main(["data", "fetch", "cifar10"]) == 0
    assert "cifar10 is in" in capsys.readouterr().out
    assert (catalogue.home() / "cifar10" / "a.gz").read_bytes() == CONTENT
