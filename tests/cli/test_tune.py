"""`tilewright tune` through PoCL, on a tiny network and with a small budget."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from tests.own_kernels import DIRECT, kernel_file
from tests.test_plan import NETWORK, needs_opencl
from tilewright.cli import main
from tilewright.judge import sandbox
from tilewright.measure.samples import exactly
from tilewright.model.formats.description import to_json
from tilewright.plan_file import read
from tilewright.results import schema
from tilewright.rungs import resolve
from tilewright.tune import device
from tilewright.tune.device import OnDevice

pytestmark = [needs_opencl, pytest.mark.usefixtures("quick_workers", "not_optimised")]
isolates = pytest.mark.skipif(bool(sandbox.protection().missing), reason="needs Landlock")


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command for a tiny network in a folder, with as few rounds as there can be."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(device, "ROUNDS", exactly(2))
    Path("small.json").write_text(to_json(NETWORK))
    return ["tune", "--net", "small.json", "--device", "opencl", "--batch", "3", "--images", "4",
            "--budget", "1", "--no-save"]  # fmt: skip


def test_a_plan_is_found_and_run_uses_it(
    given: list[str], capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [*given, "direct", "padded", "--json", "made.json"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "every choice proven" in shown
    assert "tilewright run --net small.json --plan plan.json" in shown
    assert all(len(line) <= 100 for line in shown.splitlines())
    made = json.loads(Path("made.json").read_text())
    jsonschema.validate(made, json.loads(schema.schema("tune")))
    plan = read(Path("plan.json"), NETWORK)
    assert set(resolve(plan)) <= {"direct", "padded"} and plan.batch == 3
    (best,) = (each for each in made["plans"] if each["name"] == made["written"])
    assert [part["options"] for part in best["parts"]] == [step.options for step in plan.steps]
    # A second time it goes on (what was proven is so), and on another device a plan is refused.
    monkeypatch.setattr(OnDevice, "prove_plan", lambda *_: None)
    monkeypatch.setattr(OnDevice, "prove", lambda *_: None)
    kept = ["--history", "kept.sqlite"]
    assert main([*given[:-1], "direct", "padded", *kept]) == 0
    assert f"going on from {made['tried']} trials in plan.json.trials" in capsys.readouterr().err
    assert main(["history", "show", "1", *kept]) == 0
    assert f"{made['tried']} of them before" in capsys.readouterr().out
    document = json.loads(Path("plan.json").read_text())
    document["device"]["model"] = "Another GPU"
    Path("plan.json").write_text(json.dumps(document))
    assert main(["run", "--net", "small.json", "--plan", "plan.json"]) == 2
    assert "stale plan: device opencl had model 'Another GPU'" in capsys.readouterr().err


@isolates
def test_a_kernel_file_takes_part_and_a_wrong_one_does_not(
    given: list[str], capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In isolation they are proven all the same.
    monkeypatch.setattr(OnDevice, "prove_plan", lambda *_: None)
    monkeypatch.setattr(OnDevice, "prove", lambda *_: None)
    Path("right.cl").write_text(kernel_file(DIRECT, name="right"))
    Path("wrong.cl").write_text(kernel_file(DIRECT, ("ky = 0", "ky = 1"), name="wrong"))
    assert main([*given, "direct", "./right.cl", "./wrong.cl", "--json", "made.json"]) == 0
    made = json.loads(Path("made.json").read_text())
    assert "right, own choice" in {each["name"] for each in made["plans"]}
    assert not any("wrong" in each["name"] for each in made["plans"])
    lines = [json.loads(line) for line in Path("plan.json.trials").read_text().splitlines()[1:]]
    problems = {line["rung"]: line["problem"] for line in lines if line["part"] == "conv1"}
    assert problems["direct"] is problems["right"] is None
    assert problems["wrong"].startswith("computes something wrong: conv")
    assert "Dropped: conv1 by wrong: computes something wrong" in capsys.readouterr().out


def test_ctrl_c_keeps_what_was_tried_and_writes_no_plan(
    given: list[str], capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(OnDevice, "prove", stop)
    assert main([*given, "direct"]) == 130
    error = capsys.readouterr().err
    assert "kept in plan.json.trials: the same command goes on from there" in error
    assert error.endswith("tilewright: interrupted\n")
    assert sorted(path.name for path in Path().iterdir()) == ["plan.json.trials", "small.json"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["nothing"], "unknown rung on opencl 'nothing'"),
        (
            ["direct", "--precision", "fp16", "--device", "cpu"],
            "does not run on cpu: add --device",
        ),
        (["onnxruntime", "--device", "cpu"], "has a runtime of its own, and a plan runs on one"),
        (["--out", "small.json"], "--out small.json is the file of --net"),
        (["--json", "plan.json"], "--json plan.json is the file of --out"),
    ],
)
def test_what_cannot_be_tuned_is_one_line(
    given: list[str], words: list[str], error: str, capsys: pytest.CaptureFixture
) -> None:
    assert main([*given, *words]) == 2
    shown = capsys.readouterr().err
    assert error in shown and shown.count("\n") == 1
    assert not Path("plan.json").exists() and not Path("plan.json.trials").exists()


def test_trials_of_another_batch_are_refused(
    given: list[str], capsys: pytest.CaptureFixture
) -> None:
    Path("plan.json.trials").write_text(json.dumps({"schema": "tilewright.trials/1"}) + "\n")
    assert main([*given, "direct"]) == 2
    assert "plan.json.trials is of another tilewright" in capsys.readouterr().err
