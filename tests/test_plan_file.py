"""Plans in files: what was written comes back, and what is stale, foreign or broken does not."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.profiling.made import CEILINGS
from tests.test_plan import NETWORK, PIXELS, mixed, needs_opencl
from tilewright import plan_file
from tilewright import rungs as ladder
from tilewright.cli import main
from tilewright.errors import TilewrightError
from tilewright.execute import Program
from tilewright.model.formats import weights
from tilewright.model.layers import ReLU
from tilewright.model.network import Network
from tilewright.plan import uniform
from tilewright.profiling import ceilings
from tilewright.rungs import find, resolve
from tilewright.runtime.device import CPU


@pytest.fixture
def saved(tmp_path):
    """A plan of all layers by im2col, in a file; and a way to change what the file says."""
    path = tmp_path / "plan.json"
    plan_file.write(path, uniform(NETWORK, find("im2col"), CPU, 5), NETWORK)

    def change(*place, to):
        document = json.loads(path.read_text())
        *outer, last = place
        inner = document
        for key in outer:
            inner = inner[key]
        inner[last] = to
        path.write_text(json.dumps(document))
        return path

    return path, change


@pytest.mark.parametrize("rung", ["im2col", "fused"])
def test_what_was_written_comes_back(rung, tmp_path):
    plan = uniform(NETWORK, find(rung), CPU, 5)
    plan_file.write(tmp_path / "plan.json", plan, NETWORK)
    assert plan_file.read(tmp_path / "plan.json", NETWORK) == plan


@needs_opencl
@pytest.mark.usefixtures("not_optimised")
def test_a_mixed_plan_from_a_file_computes_the_same(tmp_path):
    plan = mixed()
    expected = Program(NETWORK, plan, resolve(plan))(PIXELS)
    plan_file.write(tmp_path / "plan.json", plan, NETWORK)
    again = plan_file.read(tmp_path / "plan.json", NETWORK)
    assert again == plan
    np.testing.assert_array_equal(Program(NETWORK, again, resolve(again))(PIXELS), expected)


def test_a_stale_plan_says_what_is_different(saved):
    path, change = saved
    document = path.read_text()
    for place, to, words in (
        (("tilewright",), "0.0.1", "stale plan: made by Tilewright 0.0.1, this is"),
        (("network", "layers"), "0" * 32, "stale plan: network 'small' had other layers"),
        (("device", "model"), "Another CPU", "stale plan: device cpu had model 'Another CPU', now"),
        (("device", "driver"), "vectors: mmx", "stale plan: device cpu had driver 'vectors: mmx'"),
    ):
        change(*place, to=to)
        with pytest.raises(TilewrightError) as error:
            plan_file.read(path, NETWORK)
        assert f"{path}: {words}" in str(error.value)
        assert str(error.value).endswith("; make it anew with --save-plan or tune")
        path.write_text(document)


def test_a_plan_of_another_network_names_its_own(saved):
    other = Network("other", NETWORK.input, (ReLU(),))
    with pytest.raises(TilewrightError, match="is for network 'small', not 'other': name its"):
        plan_file.read(saved[0], other)


def test_a_rung_from_a_file_is_held_to_it(tmp_path, monkeypatch):
    kernel = tmp_path / "mine.cl"
    kernel.write_text("first")
    rung = replace(find("im2col"), origin=str(kernel))
    path = tmp_path / "plan.json"
    plan = uniform(NETWORK, rung, CPU, 5)
    plan_file.write(path, plan, NETWORK)
    again = plan_file.read(path, NETWORK)
    assert again == plan
    monkeypatch.setattr(ladder, "choose", lambda device, name, precision: {str(kernel): rung}[name])
    assert resolve(again) == {"im2col": rung}
    monkeypatch.setattr(ladder, "choose", lambda *given: replace(rung, name="other"))
    with pytest.raises(TilewrightError, match=r"mine.cl is rung 'other', not 'im2col' as in"):
        resolve(again)
    kernel.write_text("second")
    with pytest.raises(TilewrightError, match=r"stale plan: rung 'im2col': .*mine.cl has changed"):
        plan_file.read(path, NETWORK)
    kernel.unlink()
    with pytest.raises(TilewrightError, match=r"cannot read .*mine.cl: No such file"):
        plan_file.read(path, NETWORK)


@pytest.mark.parametrize(
    ("place", "to", "words"),
    [
        (("schema",), "tilewright.plan/2", "schema: 'tilewright.plan/2', and a plan has"),
        (("schema",), 3, "$.schema"),
        (("batch",), 0, "$.batch"),
        (("batch",), "5", "$.batch"),
        (("steps",), [], "$.steps"),
        (("steps", 1, "rung"), None, "$.steps[1].rung"),
        (("steps", 0, "layers"), "input", "$.steps[0].layers"),
        (("steps", 0, "options"), [], "$.steps[0].options"),
        (("device", "name"), "toaster", "device.name: unknown device 'toaster'"),
        (("device",), {}, "$.device"),
        (("more",), 1, "more"),
    ],
)
def test_what_is_malformed_names_the_field(saved, place, to, words):
    path, change = saved
    change(*place, to=to)
    with pytest.raises(TilewrightError) as error:
        plan_file.read(path, NETWORK)
    assert str(error.value).startswith(f"{path}: ")
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_what_is_no_plan_is_one_line(saved, tmp_path):
    path, _ = saved
    whole = path.read_bytes()
    nested = b'{"schema": "tilewright.plan/1", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    for content in (b"", whole[: len(whole) // 2], b"\xff\xfe", b"[]", b"null", nested):
        path.write_bytes(content)
        with pytest.raises(TilewrightError) as error:
            plan_file.read(path, NETWORK)
        assert str(error.value).startswith(f"{path}: not a plan: ")
    with path.open("wb") as file:
        file.truncate(plan_file.LARGEST_BYTES + 1)
    with pytest.raises(TilewrightError, match="larger than 10,000,000 bytes"):
        plan_file.read(path, NETWORK)
    with pytest.raises(TilewrightError, match="it is a folder"):
        plan_file.read(tmp_path, NETWORK)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Of the small network, for the command line; what the machine can do is not of interest."""
    monkeypatch.setattr(ceilings, "measure", lambda *given: ceilings.Known(CEILINGS, ""))
    weights.save(NETWORK, tmp_path / "small.safetensors")
    np.savez(tmp_path / "images.npz", images=PIXELS, labels=np.zeros(len(PIXELS), int))
    given = ("--net", "small.safetensors"), ("--data", "images.npz")
    return ["run", *(word for name, file in given for word in (name, str(tmp_path / file)))]


def test_a_run_saves_its_plan_and_another_uses_it(run, tmp_path, capsys):
    plan, first, second = (tmp_path / name for name in ("plan.json", "a.json", "b.json"))
    given = ["--rung", "im2col", "--batch", "2", "--save-plan", str(plan)]
    assert main([*run, *given, "--json", str(first)]) == 0
    assert main([*run, "--plan", str(plan), "--json", str(second)]) == 0
    before, after = (json.loads(path.read_text()) for path in (first, second))
    assert before["plan"] == after["plan"]
    assert (after["rung"], after["batch"]) == ("im2col", 2)
    capsys.readouterr()


@pytest.mark.parametrize(
    "option", ["--rung im2col", "--device cpu", "--batch 100", "--precision fp32", "--save-plan x"]
)
def test_what_a_plan_says_is_not_said_twice(option, saved, capsys):
    assert main(["run", "--plan", str(saved[0]), *option.split()]) == 2
    error = capsys.readouterr().err
    assert f"{option.split()[0]} is not for --plan: the plan says all of it" in error


def test_a_plan_that_cannot_be_carried_out_names_its_file(run, tmp_path, capsys):
    plan = tmp_path / "plan.json"
    assert main([*run, "--rung", "im2col", "--save-plan", str(plan)]) == 0
    document = json.loads(plan.read_text())
    for change, words in (
        ({"rung": "im2cool"}, "unknown rung on cpu 'im2cool'; did you mean 'im2col'?"),
        ({"options": {"a": 1}}, "step 2 (conv1): rung 'im2col' has no options"),
        ({"precision": "fp8"}, "rung 'im2col' cannot run with --precision fp8"),
        ({"layers": ["conv9"]}, "step 2 (conv9): rung 'im2col' takes no such layers"),
    ):
        steps = [{**step, **change} if n == 1 else step for n, step in enumerate(document["steps"])]
        plan.write_text(json.dumps({**document, "steps": steps}))
        capsys.readouterr()
        assert main([*run, "--plan", str(plan)]) == 2
        error = capsys.readouterr().err
        assert f"{plan}: {words}" in error.replace("\n", ""), error
