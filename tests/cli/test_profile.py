from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from tests.profiling.made import CEILINGS, profile
from tilewright.cli import main
from tilewright.model.formats.weights import save
from tilewright.model.layers import Convolution, FullyConnected, Pixels
from tilewright.model.network import Network
from tilewright.profiling import saved, session
from tilewright.results.document import text as text_of
from tilewright.runtime import opencl
from tilewright.runtime.device import OPENCL
from tilewright.truth.trials import random_parameters
from tilewright.views import timeline

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs" / "profile.schema.json").read_text())
LAYERS = Convolution(2, 3), Convolution(2, 3), FullyConnected(3)
SMALL = Network("small", Pixels((1, 7, 7)), LAYERS)
QUICK = ["--net", "ece408", "--images", "4", "--batch", "2", "--repeats", "1"]


@pytest.fixture(autouse=True)
def no_calibration(monkeypatch):
    monkeypatch.setattr(session, "ceilings", lambda device, name, precision: (CEILINGS, None))


def refused(capsys, *arguments):
    assert main(["profile", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.err.count("\n") == 1
    return shown.err


def test_tables_and_every_file(tmp_path, capsys):
    out = {name: tmp_path / f"p.{name}" for name in ("json", "csv", "trace")}
    files = [word for name, path in out.items() for word in (f"--{name}", str(path))]
    assert main(["profile", *QUICK, "--rung", "im2col", *files]) == 0
    text = capsys.readouterr().out
    assert "Where the wall time went" in text
    assert max(map(len, text.splitlines())) <= 100
    document = json.loads(out["json"].read_text())
    jsonschema.validate(document, SCHEMA)
    rows = list(csv.DictReader(out["csv"].open()))
    assert {row["name"]: int(row["calls"]) for row in rows}["im2col_conv"] == 4
    assert len(json.loads(out["trace"].read_text())["traceEvents"]) > 20
    assert saved.read(out["json"]).images == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.csv", "p.json", "p.trace"]


def test_a_plan_says_what_is_profiled(tmp_path, capsys):
    plan, out = tmp_path / "plan.json", tmp_path / "p.json"
    chosen = ["--rung", "im2col", "--batch", "2", "--images", "4"]
    assert main(["run", *chosen, "--save-plan", str(plan)]) == 0
    again = ["--plan", str(plan), "--images", "4", "--repeats", "1"]
    assert main(["profile", *again, "--json", str(out)]) == 0
    found = saved.read(out)
    assert (found.rung, found.batch) == ("im2col", 2)
    capsys.readouterr()
    assert "--batch is not for --plan" in refused(capsys, "--plan", str(plan), "--batch", "2")
    several = refused(capsys, "--plan", str(plan), "--compare", "im2col", "fused")
    assert "--plan is of one run" in several


def test_json_on_standard_output_is_only_json(capsys):
    assert main(["profile", *QUICK, "--rung", "im2col", "--json", "-"]) == 0
    jsonschema.validate(json.loads(capsys.readouterr().out), SCHEMA)


@pytest.mark.skipif(opencl.missing(OPENCL) is not None, reason="no OpenCL")
@pytest.mark.usefixtures("not_optimised")
def test_on_opencl(tmp_path, capsys):
    out, network = tmp_path / "p.json", tmp_path / "small.safetensors"
    save(SMALL.with_parameters(random_parameters(SMALL, np.random.default_rng(1))), network)
    arguments = ["--device", "opencl", "--rung", "direct", "--memory", "per-layer"]
    given = ["--net", str(network), "--data", "drawn", *QUICK[2:], *arguments]
    assert main(["profile", *given, "--json", str(out)]) == 0
    text = capsys.readouterr().out
    for words in ("[memcpy HtoD]", "clEnqueueNDRangeKernel", "OpenCL's profiling events"):
        assert words in text
    rows = {row["name"]: row for row in json.loads(out.read_text())["rows"]}
    assert rows["direct_conv"]["calls"] == 2 * 2


def test_two_rungs_side_by_side(tmp_path, capsys):
    out = tmp_path / "c.json"
    assert main(["profile", *QUICK, "--compare", "im2col", "fused", "--json", str(out)]) == 0
    text = capsys.readouterr().out
    assert "A: im2col on cpu" in text
    assert "B: fused on cpu" in text
    assert "Layer by layer" in text
    document = json.loads(out.read_text())
    assert document["schema"] == "tilewright.comparison/1"
    assert document["wall"][0]["before"] > 0


def test_two_saved_profiles_or_one_and_a_rung(tmp_path, capsys):
    for name, some in (("a.json", profile()), ("b.json", profile("tuned", 0.5))):
        (tmp_path / name).write_text(text_of(saved.record(some)))
    both = [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    assert main(["profile", "--compare", *both, "--csv", str(tmp_path / "c.csv")]) == 0
    assert "tuned_conv" in capsys.readouterr().out
    assert (tmp_path / "c.csv").read_text().startswith("table,name,before")
    words = refused(capsys, *QUICK, "--compare", both[0], "im2col")
    assert "cannot compare a profile of 'small' with one of 'ece408'" in words


def test_what_cannot_be_compared_is_refused_before_anything_runs(tmp_path, capsys, monkeypatch):
    file = tmp_path / "a.json"
    file.write_text(text_of(saved.record(profile(images=0, stopped="interrupted"))))
    monkeypatch.setattr(session, "make_ready", None)
    assert "with one of 'ece408'" in refused(capsys, *QUICK, "--compare", str(file), "im2col")
    assert "stopped before any image" in refused(capsys, "--compare", str(file), str(file))


def test_files_are_written_though_nobody_reads_the_tables(tmp_path):
    out = tmp_path / "p.json"
    program = (
        "import sys; from tests.profiling.made import CEILINGS; from tilewright.profiling import "
        "session; from tilewright.cli import main\n"
        "session.ceilings = lambda *_: (CEILINGS, None)\n"
        "sys.exit(main())"
    )
    command = [sys.executable, "-c", program, "profile", *QUICK, "--rung", "im2col"]
    child = subprocess.Popen(
        [*command, "--json", str(out)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    child.stdout.close()
    assert (child.wait(timeout=120), child.stderr.read()) == (0, b"")
    child.stderr.close()
    jsonschema.validate(json.loads(out.read_text()), SCHEMA)


def test_bad_input_is_one_line(tmp_path, capsys):
    broken = tmp_path / "broken.json"
    broken.write_text("{}")
    assert "not a profile saved by" in refused(capsys, "--compare", str(broken), str(broken))
    assert "No such file" in refused(capsys, "--compare", "none.json", "also.json")
    assert "unknown rung" in refused(capsys, *QUICK, "--compare", "fused", "tunned")
    assert "about two" in refused(capsys, "--compare", "fused", "im2col", "--rung", "fused")
    assert "about two" in refused(capsys, "--compare", "a", "b", "--trace", str(tmp_path / "t"))
    assert "No such file" in refused(capsys, "--json", str(tmp_path / "no" / "where.json"))
    assert "it is a folder" in refused(capsys, "--trace", str(tmp_path))
    assert "--csv - is not possible" in refused(capsys, "--csv", "-")
    same = str(tmp_path / "same")
    assert "is the file of --json" in refused(capsys, "--json", same, "--trace", same)
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "data_batch_1.bin").write_bytes(b"images")
    words = refused(capsys, "--data", str(folder), "--json", str(folder / "data_batch_1.bin"))
    assert "is there already, in the folder of --data" in words
    assert (folder / "data_batch_1.bin").read_bytes() == b"images"
    saved_file = str(broken)
    words = refused(capsys, "--compare", saved_file, saved_file, "--json", saved_file)
    assert "is the file of --compare" in words


def stopping(monkeypatch, error):
    """A profiled run that an error cuts short after two of four images."""
    from tilewright.execute import Program

    right = Program.__call__

    def cut(self, images, trace=None, progress=lambda done: None):
        def step(done):
            progress(done)
            if trace is not None and trace.detailed:
                raise error

        return right(self, images, trace, step)

    monkeypatch.setattr(Program, "__call__", cut)


def test_ctrl_c_keeps_what_was_recorded(tmp_path, capsys, monkeypatch):
    stopping(monkeypatch, KeyboardInterrupt())
    out = [str(tmp_path / name) for name in ("t.json", "p.json")]
    code = main(["profile", *QUICK, "--rung", "im2col", "--trace", out[0], "--json", out[1]])
    assert code == 130
    shown = capsys.readouterr()
    assert "PARTIAL: interrupted after 2 of 4 images" in shown.out
    assert shown.err == "tilewright: interrupted\n"
    assert json.loads(Path(out[0]).read_text())["traceEvents"]
    jsonschema.validate(json.loads(Path(out[1]).read_text()), SCHEMA)


def test_a_fault_keeps_what_was_recorded(tmp_path, capsys, monkeypatch):
    stopping(monkeypatch, RuntimeError("cudaErrorIllegalAddress"))
    out = str(tmp_path / "p.json")
    assert main(["profile", *QUICK, "--rung", "im2col", "--json", out]) == 2
    shown = capsys.readouterr()
    assert "PARTIAL: RuntimeError: cudaErrorIllegalAddress after 2 of 4 images" in shown.out
    assert shown.err == (
        "tilewright: rung im2col on cpu: RuntimeError: cudaErrorIllegalAddress after 2 of 4 "
        "images\n"
    )
    assert json.loads(Path(out).read_text())["stopped"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk(capsys, monkeypatch):
    if os.access("/dev/full", os.W_OK):
        words = refused(capsys, *QUICK, "--rung", "im2col", "--trace", "/dev/full")
        assert "cannot write /dev/full: No space left on device" in words


def test_a_disk_that_fills_up_during_the_run(tmp_path, capsys, monkeypatch):
    right = timeline.Timeline.__call__
    seen = []

    def full(self, event):
        seen.append(event)
        if len(seen) == 5:
            monkeypatch.setattr(self, "file", open("/dev/full", "wb", buffering=0))  # noqa: SIM115, PTH123
        right(self, event)

    monkeypatch.setattr(timeline.Timeline, "__call__", full)
    out = tmp_path / "t.json"
    words = refused(capsys, *QUICK, "--rung", "im2col", "--trace", str(out))
    assert f"cannot write {out}: No space left on device" in words
    assert list(tmp_path.iterdir()) == []
