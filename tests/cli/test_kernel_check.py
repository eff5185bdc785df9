"""`tilewright kernel check`: what it says of right, wrong, broken and dangerous kernel files."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest

from tests.own_kernels import BROKEN, DIRECT, SUM, WINOGRAD, kernel_file
from tilewright.cli import main
from tilewright.judge.check import _choices
from tilewright.rungs.own import parse
from tilewright.runtime import opencl
from tilewright.runtime.device import OPENCL
from tilewright.truth.quick import quick

pytestmark = [
    pytest.mark.skipif(bool(opencl.missing(OPENCL)), reason="no OpenCL device: tilewright[opencl]"),
    pytest.mark.usefixtures("quick_workers", "not_optimised"),
]
TINY = {
    "name": "tiny",
    "input": {"shape": [2, 6, 5]},
    "layers": [{"type": "convolution", "filters": 3, "kernel": 3}, {"type": "relu"}],
}


@pytest.fixture
def check(tmp_path, capsys):
    """Exit code, what was printed and the record, for some files by their names."""

    def run(files, *options):
        paths = []
        for name, text in files.items():
            paths.append(tmp_path / f"{name}.cl")
            paths[-1].write_text(text)
        record = tmp_path / "record.json"
        net = tmp_path / "net.json"
        net.write_text(json.dumps(TINY))
        given = ("--net", str(net), "--seed", "7", "--json", str(record), *options)
        code = main(["kernel", "check", *map(str, paths), *given])
        said = capsys.readouterr()
        found = json.loads(record.read_text())["files"] if record.exists() else None
        return code, said.out, said.err, found

    return run


@pytest.fixture
def thin(monkeypatch):
    """Of trials one in so many: each layer of them is compiled."""

    def every(nth):
        monkeypatch.setattr(
            "tilewright.judge.check.quick", lambda *given: islice(quick(*given), 0, None, nth)
        )

    return every


@pytest.fixture
def few_trials(thin):
    """Where it does not matter which."""
    thin(20)


def test_right_wrong_and_broken_files_each_have_their_block(check, thin, one_in):
    thin(1 if one_in == 1 else 13)
    files = {
        "right": kernel_file(DIRECT),
        "wrong": BROKEN["no test at the left and right"][0],
        "syntax": kernel_file(DIRECT, ("float sum = bias[filter];", "float sum = bias[filter]")),
        "header": "/* tilewright\nname = 3\n*/\n",
        "dangerous": kernel_file(
            DIRECT, (SUM, "] = sum; if (filter == 1) out[(1L << 40) * (row + 1)] = 1;")
        ),
        "never": WINOGRAD.format(precision="fp32").replace("TAPS_Y == 3", "TAPS_Y == 77"),
    }
    code, out, _, found = check(files)
    assert code == 1
    blocks = dict(zip(files, out.strip().split("\n\n"), strict=True))
    assert "  compiles\n  right: " in blocks["right"] and "of its bound" in blocks["right"]
    assert "  - border not tested: your output equals what comes out" in blocks["wrong"]
    assert " 0 #...........#" in blocks["wrong"] and "--seed 7" in blocks["wrong"]
    line = 1 + files["syntax"][: files["syntax"].index("bias[filter]\n")].count("\n")
    assert f"syntax.cl:{line}:29: expected ';'" in blocks["syntax"]
    assert "    float sum = bias[filter]\n" in blocks["syntax"]
    assert "header.cl:1:" in blocks["header"]
    assert "stopped: the worker was stopped" in blocks["dangerous"]
    assert "for none of the layers" in blocks["never"]
    outcomes = [each["outcome"] for each in found]
    assert outcomes == ["right", "wrong", "does not compile", "refused", "stopped", "refused"]
    assert found[1]["diagnosis"]["reasons"][0]["word"] == "border not tested"
    assert found[0]["verification"]["trials"] > (30 if one_in == 1 else 2)
    assert found[0]["verification"]["worst"] < 1
    assert found[1]["verification"]["seed"] == 7 and found[2]["verification"] is None


@pytest.mark.usefixtures("few_trials")
def test_a_file_that_is_right_is_code_0_also_for_some_layers_alone(check):
    code, out, _, found = check({"fast": WINOGRAD.format(precision="fp32-winograd")})
    assert code == 0
    assert "(winograd, fp32-winograd)" in out
    assert found[0]["skipped_trials"] > 0
    assert "trials are of layers that it is not for" in " ".join(out.split())


@pytest.mark.usefixtures("few_trials")
def test_other_choices_of_parameters_are_tried_too(check):
    """As written it is right; the tile of 8 has a row too few."""
    more = "[parameters]\nSIDE = [16, 8]\n"
    text = kernel_file(
        DIRECT, ("row < TW_OUT_Y)\n        out", "row < TW_OUT_Y - (TW_SIDE == 8))\n        out")
    )
    text = text.replace("[sizes]", f"{more}[sizes]")
    code, out, _, found = check({"tiles": text})
    assert code == 1
    assert "  with SIDE = 8:\n" in out
    assert found[0]["diagnosis"]["reasons"][0]["word"] == "never written"


def test_choices_that_meet_no_constraint_are_not_among_those_tried():
    more = 'constraints = "SIDE % 20 == 0 and SIDE + OUT_X > 30"\n[parameters]\n'
    text = kernel_file(DIRECT).replace("[sizes]", f"{more}SIDE = {{from = 1, to = 100}}\n[sizes]")
    tried = list(_choices(parse(text, Path("mine.cl")), 3))
    assert tried == [{"SIDE": (40,)}, {"SIDE": (80,)}]
    assert not list(_choices(parse(kernel_file(DIRECT), Path("mine.cl")), 3))


def test_files_that_are_no_text_do_not_keep_others_from_their_turn(tmp_path, capsys):
    (tmp_path / "binary.cl").write_bytes(b"\xff\x00")
    (tmp_path / "folder.cl").mkdir()
    (tmp_path / "marked.cl").write_text(
        "\ufeff" + kernel_file(DIRECT, ("float sum", "float float"))
    )
    paths = [str(tmp_path / f"{name}.cl") for name in ("binary", "folder", "marked")]
    assert main(["kernel", "check", *paths]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "binary.cl:1: not UTF-8 text" in said and "folder.cl is not a plain file" in said
    assert "marked.cl does not compile" in said


def test_what_cannot_be_run_is_code_2(check, tmp_path, capsys):
    assert main(["kernel", "check", str(tmp_path / "none.cl")]) == 2
    assert "cannot read the kernel file" in capsys.readouterr().err
    code, _, err, _ = check({"mine": kernel_file(DIRECT)}, "--device", "cpu")
    assert code == 2 and "not on cpu" in err
    code, _, err, _ = check({"mine": kernel_file(DIRECT)}, "--seed", "-3")
    assert code == 2 and "not a whole number" in err
