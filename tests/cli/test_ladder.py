from __future__ import annotations

import json

import pytest

from tests.test_climb import quick, trusting  # noqa: F401
from tilewright.cli import main
from tilewright.errors import TilewrightError
from tilewright.measure.samples import Rounds
from tilewright.rungs import rungs
from tilewright.runtime.device import CPU
from tilewright.truth.evidence import Fault
from tilewright.truth.verify import Verdict

pytestmark = pytest.mark.usefixtures("quick", "trusting")


@pytest.mark.parametrize("net", ["cifar10", "ece408-2017"])
def test_the_table_has_every_rung_and_fits(net, capsys):
    assert main(["ladder", "--net", net, "--images", "2", "--batch", "1", "--repeats", "3"]) == 0
    text = capsys.readouterr().out
    for rung in rungs(CPU):
        assert rung.name in text
    assert "1.00x" in text
    assert "2 images, 3 rounds in turns" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 100


def test_more_convolutions_than_fit_have_a_table_of_their_own(tmp_path, capsys):
    layers = [{"type": "convolution", "filters": 2, "kernel": 3, "padding": 1}] * 5
    net = {"name": "deep", "input": {"shape": [1, 8, 8]},
           "layers": [*layers, {"type": "fully_connected", "outputs": 10}]}  # fmt: skip
    (tmp_path / "deep.json").write_text(json.dumps(net))
    arguments = ["--net", str(tmp_path / "deep.json"), "--images", "2", "--repeats", "1"]
    assert main(["ladder", *arguments]) == 0
    text = capsys.readouterr().out
    assert "Op times" in text
    assert "conv5" in text
    assert "random weights" in text


def test_json_keeps_raw_samples(tmp_path, capsys):
    out = tmp_path / "ladder.json"
    arguments = ["--net", "cifar10", "--images", "1", "--repeats", "3", "--json", str(out)]
    assert main(["ladder", *arguments]) == 0
    document = json.loads(out.read_text())
    serial = document["rungs"][0]
    assert serial["rung"] == "serial"
    assert serial["verification"]["passed"]
    assert serial["verification"]["worst"] == 0.0
    assert len(serial["network"]["samples_seconds"]) == 3
    assert document["repeats"] == 3
    assert isinstance(document["order_seed"], int)
    assert len(document["conditions"]["spin_seconds"]) == 4
    assert len(serial["operations"]["conv2"]["samples_seconds"]) == 3
    assert document["environment"]["cores"] >= 1
    assert capsys.readouterr().out


def test_json_on_standard_output_is_only_json(capsys):
    arguments = ["--net", "cifar10", "--images", "1", "--repeats", "1", "--json", "-"]
    assert main(["ladder", *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "tilewright.ladder/2"


def test_without_a_number_rounds_go_on_until_it_is_certain(monkeypatch, capsys):
    given = []

    def stop(network, images, device, batch, rounds, *more, **others):
        given.append(rounds)
        raise TilewrightError("that is all")

    monkeypatch.setattr("tilewright.verbs.ladder.climb", stop)
    assert main(["ladder", "--net", "cifar10", "--images", "1"]) == 2
    assert main(["ladder", "--net", "cifar10", "--images", "1", "--repeats", "4"]) == 2
    assert given == [Rounds(), 4]


@pytest.fixture
def plan(tmp_path, capsys):
    """What a run of im2col on two images at a time chose."""
    path = tmp_path / "mine.json"
    assert main(["run", "--net", "cifar10", "--images", "2", "--batch", "2", "--rung", "im2col",
                 "--save-plan", str(path)]) == 0  # fmt: skip
    capsys.readouterr()
    return path


TWO = ("ladder", "--net", "cifar10", "--images", "2", "--repeats", "1", "--rungs", "im2col")


def test_a_saved_plan_is_a_row_compared_with_the_rung_that_it_is_of(plan, monkeypatch, capsys):
    verdict = Verdict(seed=1, trials=3, outputs=9, worst=0.999, fault=None)
    given = []

    def proven(rungs, network, of, images, tell):
        given.append((rungs[0].name, of.batch, images))
        return verdict

    monkeypatch.setattr("tilewright.climb.prove_plan", proven)
    assert main([*TWO, "--batch", "2", "--plan", str(plan), "--json", "-"]) == 0
    captured = capsys.readouterr()
    first, second = json.loads(captured.out)["rungs"]
    assert (first["rung"], second["rung"]) == ("im2col", "mine.json")
    assert second["against"]["rung"] == "im2col"
    assert len(second["network"]["samples_seconds"]) == 1
    assert list(second["operations"]) == ["conv1", "conv2", "conv3"]
    assert given == [("im2col", 2, 2)]
    assert "mine.json: proven: 3 trials, 9 outputs, worst 0.99 of its bound" in captured.err


def test_a_plan_that_is_wrong_is_not_timed(plan, monkeypatch, capsys):
    wrong = Verdict(seed=1, trials=3, outputs=9, worst=2.0, fault=Fault("conv1", "ones", "is 2"))
    monkeypatch.setattr("tilewright.climb.prove_plan", lambda *given: wrong)
    assert main([*TWO, "--batch", "2", "--plan", str(plan)]) == 1
    assert "mine.json computes something wrong: conv1, ones: is 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--batch", "3"), "mine.json: the plan is for --batch 2, not 3"),
        (("--batch", "2", "--device", "opencl"), "the plan is for --device cpu, not opencl"),
        (("--batch", "2", "--net", "ece408"), "the plan is for network 'cifar10', not 'ece408'"),
    ],
)
def test_a_plan_for_something_else_is_refused_before_anything_is_proven(plan, more, words, capsys):
    assert main(["ladder", "--net", "cifar10", *more, "--plan", str(plan)]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(("device", "images"), [("cpu", 10), ("opencl", 4)])
def test_a_first_look_takes_few_images_and_fewer_where_a_cpu_plays_the_gpu(
    device, images, monkeypatch
):
    given = []

    def stop(network, pixels, *more, **others):
        given.append(len(pixels))
        raise TilewrightError("that is all")

    monkeypatch.setattr("tilewright.verbs.ladder.climb", stop)
    assert main(["ladder", "--quick", "--device", device]) == 2
    assert given == [images]
