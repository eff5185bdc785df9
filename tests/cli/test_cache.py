from __future__ import annotations

import tilewright
from tilewright.cli import main
from tilewright.fuse.cpu.build import compiled_folder
from tilewright.profile.ceilings import kept_folder


def test_show_and_clear(capsys):
    assert main(["cache"]) == 0
    assert "compiled kernels: 0 files, 0 B" in capsys.readouterr().out
    tilewright.compile(tilewright.load("cifar10"))
    assert main(["cache"]) == 0
    assert "compiled kernels: 2 files" in capsys.readouterr().out
    assert main(["cache", "clear"]) == 0
    text = capsys.readouterr().out
    assert "deleted 2 compiled kernels" in text
    assert "deleted 0 measured ceilings" in text
    assert not list(compiled_folder().iterdir())
    assert main(["cache", "burn"]) == 2


def test_measured_ceilings_are_shown_and_cleared(capsys):
    kept_folder().mkdir(parents=True)
    (kept_folder() / "a-GPU.json").write_text("{}")
    assert main(["cache"]) == 0
    assert "measured ceilings: 1 files, 2 B" in capsys.readouterr().out
    assert main(["cache", "clear"]) == 0
    assert not list(kept_folder().iterdir())
