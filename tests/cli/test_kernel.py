"""`tilewright kernel`: from a start to a run."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from tests.rungs.own.test_rung import needs_opencl
from tilewright.cli import main
from tilewright.model.formats.weights import save
from tilewright.model.layers import Convolution, FullyConnected, Pixels, ReLU
from tilewright.model.network import Network
from tilewright.truth import verify
from tilewright.truth.trials import at_hand, random_parameters

pytestmark = pytest.mark.usefixtures("quick_workers", "not_optimised")


@pytest.fixture
def mine(tmp_path, monkeypatch, capsys):
    """A kernel file, and a network with little to compute; every eighth trial: proofs have tests
    of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(verify, "at_hand", lambda *given: islice(at_hand(*given), 0, None, 8))
    layers = (Convolution(3, 3, padding=1), ReLU(), Convolution(4, 2), FullyConnected(10))
    network = Network("little", Pixels((1, 9, 8)), layers)
    save(network.with_parameters(random_parameters(network, np.random.default_rng(1))), NET)
    assert main(["kernel", "new", "mine"]) == 0
    capsys.readouterr()
    return tmp_path / "mine.cl"


NET = "little.safetensors"
OPTIONS = ("--rung", "./mine.cl", "--device", "opencl", "--net", NET, "--images", "3")


def complaint(capsys, *arguments):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err


@pytest.mark.parametrize(
    ("options", "file", "device"),
    [
        ((), "mine.cl", "opencl"),
        (("--like", "shared"), "mine.cl", "opencl"),
        (("--cuda",), "mine.cu", "cuda"),
        (("--opencl",), "mine.cl", "opencl"),
        (("--out", "other.cl"), "other.cl", "opencl"),
    ],
)
def test_new_writes_a_file_and_says_what_comes_next(
    options, file, device, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(["kernel", "new", "mine", *options]) == 0
    assert [path.name for path in tmp_path.iterdir()] == [file]
    out = capsys.readouterr().out
    assert f"wrote {file}" in out
    assert f"next: tilewright run --device {device} --rung ./{file} " in out


def test_new_never_overwrites(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.cl").write_text("my work")
    assert "mine.cl is there already" in complaint(capsys, "kernel", "new", "mine")
    assert (tmp_path / "mine.cl").read_text() == "my work"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "required: new"),
        (("old",), "invalid choice: 'old'"),
        (("new",), "required: NAME"),
        (("new", "a", "--cuda", "--opencl"), "not allowed with argument --cuda"),
        (("new", "a", "--cuda", "--out", "a.cl"), "--out a.cl: the file's name must end in .cu"),
        (("new", "a", "--out", "no/where.cl"), "cannot write no/where.cl: No such file"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(arguments, problem, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    error = complaint(capsys, "kernel", *arguments)
    assert problem in error and error.count("\n") == 1


@needs_opencl
def test_a_kernel_of_one_s_own_runs_and_is_proven_first(mine, capsys):
    assert main(["run", *OPTIONS, "--batch", "2"]) == 0
    out = capsys.readouterr().out
    assert "rung mine on opencl" in out
    assert "Proof" in out and "of its bound" in out


@needs_opencl
def test_one_that_is_wrong_is_not_run(mine, capsys):
    mine.write_text(mine.read_text().replace("kx < TW_TAPS_X", "kx < TW_TAPS_X - 1"))
    error = complaint(capsys, "run", *OPTIONS)
    assert error.startswith("tilewright: rung 'mine' computes something wrong, and was not run: ")
    assert "conv (3@3x3 pad 1 on 1x9x8)" in error


@needs_opencl
def test_what_does_not_compile_is_shown_at_its_lines(mine, capsys):
    text = mine.read_text().replace("float sum = bias", "float sum = bais")
    mine.write_text(text)
    line = 1 + text[: text.index("bais")].count("\n")
    lines = complaint(capsys, "run", *OPTIONS).splitlines()
    assert lines[0] == "tilewright: mine.cl does not compile: 1 error"
    assert lines[1].startswith(f"mine.cl:{line}:21: ")
    assert lines[3].index("^") == lines[2].index("bais")


def test_any_rung_is_proven_when_asked(mine, capsys):
    options = ("--net", NET, "--images", "2", "--rung", "im2col")
    assert main(["run", *options]) == 0
    assert "Proof" not in capsys.readouterr().out
    assert main(["run", *options, "--check"]) == 0
    assert "Proof" in capsys.readouterr().out


def test_ladders_take_files_only(mine, capsys):
    error = complaint(capsys, "ladder", "--device", "opencl", "--net", NET, "--rung", "direct")
    assert "--rung direct: names a kernel file of your own here, .cl or .cu" in error


@needs_opencl
def test_one_that_crashes_is_found_in_a_worker(mine, capsys):
    mine.write_text(mine.read_text().replace("bias[filter];", "bias[filter]; out[1L << 40] = 1;"))
    error = complaint(capsys, "run", *OPTIONS)
    assert "rung 'mine': the worker was stopped while running mine_conv" in error
    assert "SIGSEGV" in error


@needs_opencl
def test_a_layer_that_a_file_is_not_for_is_refused_before_anything_starts(mine, capsys):
    """Before the images are looked for, which are not there."""
    header = 'requires = "PAD_Y == 0"\nagainst'
    mine.write_text(mine.read_text().replace("against", header, 1))
    error = complaint(capsys, "run", *OPTIONS, "--data", "gone.npz")
    assert "conv1: mine.cl requires PAD_Y == 0, and PAD_Y is 1; with otherwise" in error


@needs_opencl
def test_another_rung_takes_such_layers(mine, capsys):
    header = 'requires = "PAD_Y == 0"\notherwise = "shared"\nagainst'
    mine.write_text(mine.read_text().replace("against", header, 1))
    assert main(["profile", *OPTIONS, "--repeats", "1"]) == 0
    out = capsys.readouterr().out
    assert "mine_conv" in out and "shared_conv" in out
