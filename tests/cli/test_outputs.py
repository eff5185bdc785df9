"""What a command writes: files whoever reads the tables, nothing half-written, nothing lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_climb import quick, trusting  # noqa: F401
from tilewright import climb
from tilewright import rungs as ladder
from tilewright.cli import main
from tilewright.files import atomic_write


@pytest.fixture
def nobody_reads(monkeypatch):
    """Standard output is a pipe whose reader has left."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        yield
        monkeypatch.undo()


@pytest.mark.usefixtures("nobody_reads", "quick", "trusting")
@pytest.mark.parametrize(
    ("verb", "options"),
    [
        ("run", ["--rung", "im2col", "--images", "1", "--json", "a", "--predictions", "b"]),
        ("ladder", ["--net", "cifar10", "--images", "1", "--repeats", "1", "--json", "a"]),
    ],
)
def test_files_are_written_although_nobody_reads_the_tables(verb, options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(climb, "rungs", lambda device: [ladder.choose(device, "im2col")])
    assert main([verb, *options]) == 0
    assert json.loads(Path("a").read_text())["schema"].startswith(f"tilewright.{verb}/")
    assert {path.name for path in tmp_path.iterdir()} == {"a"} | ({"b"} & set(options))


@pytest.mark.usefixtures("nobody_reads")
@pytest.mark.parametrize("code", [0, 1])
def test_the_exit_code_does_not_depend_on_who_reads(code, monkeypatch):
    from tilewright.views import console

    def table(arguments):
        screen = console.output()
        for _ in range(3):
            screen.print("a line")
        return code

    def document(arguments):
        console.write("x" * 1_000_000)
        return code

    for body in (table, document):
        monkeypatch.setattr("tilewright.cli.show.main", body)
        assert main(["show", "cifar10"]) == code


def test_a_ladder_never_overwrites_what_it_reads(tmp_path, capsys):
    net = tmp_path / "net.json"
    layers = [{"type": "flatten"}, {"type": "softmax"}]
    net.write_text(json.dumps({"name": "n", "input": {"shape": [1, 2, 2]}, "layers": layers}))
    before = net.read_bytes()
    for option in ("--net", "--weights", "--data"):
        assert main(["ladder", option, str(net), "--json", str(net)]) == 2
        assert f"is the file of {option}" in capsys.readouterr().err
    assert net.read_bytes() == before


@pytest.mark.parametrize("ctrl_c", [signal.default_int_handler, signal.SIG_IGN])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_leaves_nothing_half_written(number, ctrl_c, tmp_path, monkeypatch, capsys):
    """In the background, too, where Ctrl-C is ignored."""

    def write(arguments):
        with atomic_write(tmp_path / "out") as file:
            file.write(b"half")
            os.kill(os.getpid(), number)
            file.write(b"whole")

    monkeypatch.setattr("tilewright.cli.show.main", write)
    usual = {n: signal.getsignal(n) for n in (signal.SIGINT, number)}
    try:
        signal.signal(signal.SIGINT, ctrl_c)
        signal.signal(number, signal.SIG_DFL)
        assert main(["show", "cifar10"]) == 128 + number
        assert signal.getsignal(signal.SIGINT) == ctrl_c
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        for which, handler in usual.items():
            signal.signal(which, handler)
    assert capsys.readouterr().err == f"tilewright: stopped by {number.name}\n"
    assert list(tmp_path.iterdir()) == []


def test_what_holds_ctrl_c_back_holds_other_signals_back(monkeypatch, capsys):
    from tilewright.interrupts import held_back

    done = []

    def work(arguments):
        with held_back():
            os.kill(os.getpid(), signal.SIGTERM)
            done.append("all of it")
        done.append("more")

    monkeypatch.setattr("tilewright.cli.show.main", work)
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(["show", "cifar10"]) == 143
    finally:
        signal.signal(signal.SIGINT, usual)
    assert done == ["all of it"]


HOSTILE = "a\x1b[2Jb\x1b]0;title\x07c\u202ed\x9be\u200bf"
SHOWN = r"a\x1b[2Jb\x1b]0;title\x07c\u202ed\x9be\u200bf"


def test_what_would_steer_the_terminal_is_spelled_out(tmp_path, capsys):
    from rich.text import Text

    from tilewright.views import console
    from tilewright.views.table import table

    screen = console.output()
    rows = table(HOSTILE, HOSTILE)
    rows.add_row(HOSTILE)
    for part in (HOSTILE, rows, Text(HOSTILE.replace("\x07", ""))):  # Text drops a bell
        screen.print(part, soft_wrap=True)
    text = capsys.readouterr().out
    assert text.count(SHOWN) == 4
    assert text.count(r"a\x1b[2Jb") == 5
    assert {c for c in text if not c.isprintable()} == {"\n"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", HOSTILE], ["show", f"/no/{HOSTILE}"], ["run", "--data", HOSTILE],
        ["run", "--weights", f"{HOSTILE}.safetensors"], ["run", "--rung", HOSTILE],
        [HOSTILE], ["run", f"--{HOSTILE}"], ["data", "check", f"/no/{HOSTILE}"],
    ],
)  # fmt: skip
def test_no_error_steers_the_terminal(arguments, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert {c for c in error if not c.isprintable()} == {"\n"}


def test_names_and_notes_do_not_steer_the_terminal_but_stay_in_json(tmp_path, capsys):
    import numpy as np

    from tilewright import save
    from tilewright.model.layers import FullyConnected, Pixels, Softmax
    from tilewright.model.network import Network

    network = Network("plain", Pixels((1, 2, 2)), (FullyConnected(2), Softmax()))
    weights = {"fc.weight": np.ones((2, 4), np.float32), "fc.bias": np.ones(2, np.float32)}
    save(network.with_parameters(weights, {"machine": HOSTILE}), tmp_path / "n.safetensors")
    place = tmp_path / "a\x1b[2J"
    place.mkdir()
    np.savez(place / "x.npz", images=np.zeros((3, 1, 2, 2), np.uint8), labels=np.zeros(3, int))
    given = ["--net", str(tmp_path / "n.safetensors"), "--data", str(place / "x.npz")]
    out = tmp_path / "out.json"
    for arguments in (
        ["show", str(tmp_path / "n.safetensors")],
        ["run", *given, "--json", str(out)],
        ["data", "check", str(place / "x.npz")],
    ):
        assert main(arguments) == 0
        text = capsys.readouterr().out
        assert r"\x1b[2J" in text
        assert {c for c in text if not c.isprintable()} == {"\n"}
    assert str(place) in json.loads(out.read_text())["data"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_python_itself_does_not_end_by_another_signal(number, tmp_path):
    """It would, where the exception passes through `exec`, although it was caught."""
    code = (
        "import os, signal, sys; from tilewright.cli import main, show\n"
        "def body(arguments):\n"
        "    exec('os.kill(os.getpid(), number); [None for _ in range(100)]')\n"
        "number, show.main = int(sys.argv[1]), body\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.exit(main(['show', 'cifar10']))\n"
    )
    (tmp_path / "run_as_module.py").write_text(code)
    command = [sys.executable, "-m", "run_as_module", str(int(number))]
    done = subprocess.run(command, cwd=tmp_path, check=False)
    assert done.returncode == 128 + number
