"""What the verbs give back, however it is looked at."""

from __future__ import annotations

import html
import json
import pickle
import sys
import warnings
from html.parser import HTMLParser
from itertools import islice
from types import SimpleNamespace

import jsonschema
import numpy as np
import pytest

import tilewright
from tests.own_kernels import BROKEN
from tests.verbs.conftest import DESCRIPTION
from tilewright import climb
from tilewright.cli import main, output
from tilewright.results.history import History
from tilewright.results.schema import schema
from tilewright.rungs import rungs
from tilewright.runtime import opencl
from tilewright.runtime.device import OPENCL
from tilewright.truth import verify as verify_module
from tilewright.truth.evidence import Fault
from tilewright.truth.trials import trials
from tilewright.truth.verify import Verdict

FEW = {"rung": "im2col", "batch": 4}


@pytest.fixture
def two_rungs(monkeypatch):
    """A ladder of two rungs that are taken at their word."""
    monkeypatch.setattr(climb, "rungs", lambda device: rungs(device)[2:4])
    monkeypatch.setattr(climb.proofs, "verify", lambda *_, **__: Verdict(1, 2, 3, 0.5, None))


@pytest.fixture
def few_trials(monkeypatch):
    """The last ones of a proof are of the network at hand, with NaN and infinity among them."""
    monkeypatch.setattr(verify_module, "trials", lambda *given: islice(trials(*given), 0, None, 40))


pytestmark = pytest.mark.xdist_group("results of verbs")  # one worker makes them
MADE: dict[str, object] = {}


@pytest.fixture(
    params=["run", "ladder", "profile", "comparison", "fused", "direct", "network", "proof"]
)
def result(request, small, pixels, two_rungs, few_trials):
    """Each is made once, and looked at in many ways."""
    if request.param not in MADE:
        MADE[request.param] = made(request.param, small, pixels)
    return MADE[request.param]


def made(kind, small, pixels):
    match kind:
        case "run":
            return tilewright.run(small, data=pixels, **FEW)
        case "ladder":
            return tilewright.ladder(small, data=pixels, images=6, batch=4, repeats=2)
        case "profile":
            return tilewright.profile(small, data=pixels, repeats=1, **FEW)
        case "comparison":
            both = ("im2col", "fused")
            return tilewright.profile(small, data=pixels, batch=4, repeats=1, compare=both)
        case "proof":
            return tilewright.verify("im2col", small, seed=5)
        case rung:
            return tilewright.explain(rung, small)


def test_printing_shows_what_the_command_prints(result, capsys):
    output.show(None, "", result.report())
    assert capsys.readouterr().out == f"{result}\n"
    assert "<b>small</b>" in str(result) or "im2col" in str(result)
    assert max(map(len, str(result).splitlines())) <= 100


def test_its_representation_is_one_short_line(result):
    assert repr(result).startswith(f"<{type(result).__name__}: ")
    assert "\n" not in repr(result) and len(repr(result)) < 180


def test_json_is_the_command_s(result):
    document = json.loads(result.to_json())
    jsonschema.validate(document, json.loads(schema(document["schema"].split(".")[1][:-2])))


def test_it_can_be_pickled(result):
    again = pickle.loads(pickle.dumps(result))
    assert (str(again), again.to_json()) == (str(result), result.to_json())


class Balanced(HTMLParser):
    """HTML whose tags are closed in order; their names and texts."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag, attributes):
        assert {name for name, _ in attributes} <= {"style"}
        self.tags.append(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_a_notebook_shows_its_tables(result):
    page = Balanced()
    page.feed(result._repr_html_())
    assert page.open == []
    # Names are somebody's: `<b>small</b>` is shown as it is.
    assert set(page.tags) <= {"div", "pre", "table", "caption", "thead", "tbody", "tr", "th",
                              "td", "br"}  # fmt: skip
    words = set(str(result).replace("│", " ").split())
    shown = set(" ".join(page.texts).split())
    assert words - {"──", "─"} - shown <= {word for word in words if set(word) <= {"─", "╶"}}


def test_rows_as_a_data_frame(result, monkeypatch):
    frame = SimpleNamespace(DataFrame=lambda columns: ("frame", columns))
    monkeypatch.setitem(sys.modules, "pandas", frame)
    kind, columns = result.to_dataframe()
    assert kind == "frame" and columns
    for name, values in columns.items():
        assert values == [row[name] for row in result.rows()], name
        # Of one type, as data frames have it.
        types = {type(value) for value in values} - {type(None)}
        assert types <= {str} or types <= {bool} or types <= {int} or types <= {float}, name
        assert not any(each.startswith(f"{name}_") for each in columns), name
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "polars", frame)
    assert result.to_dataframe() == ("frame", columns)
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(tilewright.TilewrightError, match="neither is installed: pip install pan"):
        result.to_dataframe()


def test_nothing_is_printed_unless_asked_for(small, pixels, two_rungs, few_trials, capfd):
    tilewright.run(small, data=pixels, **FEW)
    tilewright.ladder(small, data=pixels, images=2, repeats=1)
    tilewright.profile(small, data=pixels, repeats=1, progress=True, **FEW)  # nobody looks
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tilewright.verify("im2col", small)
    assert capfd.readouterr() == ("", "")


def test_whoever_asks_is_told_how_far_it_is(small, pixels):
    told = []
    tilewright.run(small, data=pixels, progress=lambda *words: told.append(words), **FEW)
    assert ("the network, images", 6, 6) in told


def test_a_run_gives_what_was_computed(small, pixels, tmp_path):
    result = tilewright.run(small, data=pixels, **FEW)
    assert result.outputs.shape == (6, 4) and result.outputs.dtype == np.float32
    np.testing.assert_array_equal(result.predicted, result.outputs.argmax(1))
    assert result.labels is None and result.record.accuracy is None
    labelled = tilewright.run(small, data=(pixels, result.predicted), **FEW)
    assert labelled.record.accuracy == 1 and labelled.labels.tolist() == result.predicted.tolist()
    assert labelled.predictions_csv().splitlines()[1].startswith(f"0,{result.predicted[0]},")
    result.save_plan(tmp_path / "plan.json")
    again = tilewright.run(small, data=pixels, plan=tmp_path / "plan.json")
    assert again.plan == result.plan
    np.testing.assert_array_equal(again.outputs, result.outputs)


def test_outputs_have_the_shape_that_a_compiled_network_gives(pixels):
    """Of one that gives maps, too; what is predicted is a place in them."""
    described = {"name": "maps", "input": {"shape": [1, 9, 7]},
                 "layers": [{"type": "convolution", "filters": 2, "kernel": 3}]}  # fmt: skip
    weights = {"conv.weight": np.ones((2, 1, 3, 3)), "conv.bias": np.array([0.0, 1.0])}
    network = tilewright.load(described, weights)
    result = tilewright.run(network, data=pixels, **FEW)
    assert result.outputs.shape == (6, 2, 7, 5)
    np.testing.assert_allclose(result.outputs, tilewright.compile(network)(pixels), 1e-5, 1e-5)
    np.testing.assert_array_equal(result.predicted, result.outputs.reshape(6, -1).argmax(1))
    first = f"{result.outputs[0].max():.6f}"
    assert result.predictions_csv().splitlines()[1] == f"0,,{result.predicted[0]},{first}"


def test_labels_that_are_no_classes_are_refused(small, pixels):
    with pytest.raises(tilewright.TilewrightError, match="label 9 of image 0 is out of range"):
        tilewright.run(small, data=(pixels, np.full(6, 9)), **FEW)


@pytest.mark.parametrize("verb", ["run", "ladder"])
def test_what_is_kept_is_in_the_history(verb, small, pixels, two_rungs, tmp_path):
    given = FEW if verb == "run" else {"images": 6, "repeats": 1}
    result = getattr(tilewright, verb)(small, data=pixels, **given)
    number = result.keep(tmp_path / "kept.sqlite")
    assert History(tmp_path / "kept.sqlite").read(number) == result.record


def test_networks_by_name_path_object_and_dict(tmp_path, pixels, small):
    path = tmp_path / "small.safetensors"
    tilewright.save(small, path)
    weights = dict(small.parameters)
    (tmp_path / "small.json").write_text(json.dumps(DESCRIPTION))
    outputs = [
        tilewright.run(net, weights=given, data=pixels, **FEW).outputs
        for net, given in [
            (small, None),
            (path, None),
            (str(path), None),
            (DESCRIPTION, weights),
            (tmp_path / "small.json", path),
        ]
    ]
    assert len({each.tobytes() for each in outputs}) == 1
    assert tilewright.run("ece408", images=2).record.images == 2


def test_profiles_of_before_are_compared(small, pixels, tmp_path):
    before = tilewright.profile(small, data=pixels, repeats=1, **FEW)
    (tmp_path / "before.json").write_text(before.to_json())
    found = tilewright.profile(compare=(tmp_path / "before.json", before))
    assert found.record.before == found.record.after
    assert found.to_csv().startswith("table,name,before")
    assert before.to_csv().startswith("kind,name,layers")


def test_what_cut_a_profile_short_has_what_was_recorded(small, pixels, monkeypatch):
    from tests.cli.test_profile import stopping
    from tilewright.verbs.profile import Interrupted, Stopped

    stopping(monkeypatch, RuntimeError("no power"))
    with pytest.raises(Stopped, match="rung im2col on cpu: RuntimeError: no power after 4 of 6"):
        tilewright.profile(small, data=pixels, repeats=1, **FEW)
    stopping(monkeypatch, KeyboardInterrupt())
    with pytest.raises(Interrupted) as caught:
        tilewright.profile(small, data=pixels, repeats=1, **FEW)
    assert caught.value.result.record.images == 4


def test_a_command_and_its_verb_agree(small, pixels, tmp_path, capsys):
    """But for what was measured, they say the same."""
    path, data = tmp_path / "small.safetensors", tmp_path / "data.npz"
    tilewright.save(small, path)
    np.savez(data, images=pixels)
    arguments = ["--net", str(path), "--data", str(data), "--rung", "im2col", "--batch", "4"]
    assert main(["run", *arguments, "--json", "-"]) == 0
    said = json.loads(capsys.readouterr().out)
    done = json.loads(tilewright.run(path, data=data, **FEW).to_json())
    for name in ("network", "data", "images", "batch", "rung", "plan", "accuracy", "schema"):
        assert said[name] == done[name], name
    assert said.keys() == done.keys()


def test_code_is_as_it_is(small, tmp_path, capsys):
    """Never broken to fit a line."""
    path = tmp_path / "small.safetensors"
    tilewright.save(small, path)
    for rung, words, asked in (
        ("fused", ["--asm", "conv"], {"asm": "conv"}),
        ("direct", ["--source"], {"source": True}),
        ("network", ["--source"], {"source": True}),
    ):
        assert main(["explain", rung, "--net", str(path), *words]) == 0
        said = capsys.readouterr().out
        result = tilewright.explain(rung, small, **asked)
        assert said == f"{result}\n" and len(said) > 500
        assert json.loads(result.to_json())["code"] == str(result)
        assert html.escape(str(result).splitlines()[0]) in result._repr_html_()
        assert result.rows() == []


def test_pieces_of_a_rung(small):
    (piece,) = tilewright.explain("direct", small, batch=7).record.pieces
    assert (piece.layers, piece.kernel, piece.images) == (("conv",), "direct_conv", 7)
    assert tilewright.explain("direct", small).rows()[0]["layers"] == "conv"
    assert piece.flop == 7 * small.stages[1].flops and piece.limit
    groups = tilewright.explain("fused", small).record.pieces
    assert {layer for group in groups for layer in group.layers} >= {"conv", "relu", "pool", "fc"}


def test_a_proof_says_what_it_found(small, few_trials, monkeypatch):
    told = []
    result = tilewright.verify("im2col", small, seed=7, each=told.append)
    (file,) = result.record.files
    assert result.passed and file.outcome == "right" and file.verification.trials > 10
    assert [repr(each) for each in told] == [repr(result)] == ["<VerifyResult: im2col is right>"]
    assert result.record.seed == 7 and result.record.device == "cpu"
    again = tilewright.verify(["im2col"], small, seed=7)
    assert again.record.files[0].verification == file.verification
    wrong = Verdict(7, 1, 1, 2.0, Fault("conv", "real numbers", "output[0] is 1, must be 2"))
    monkeypatch.setattr("tilewright.verbs.verify.prove", lambda *_, **__: wrong)
    result = tilewright.verify("im2col")
    assert not result.passed and "wrong: conv, real numbers: output[0] is 1" in str(result)


@pytest.mark.usefixtures("quick_workers", "not_optimised")
def test_a_kernel_file_that_is_wrong(small, tmp_path, capsys):
    if why := opencl.missing(OPENCL):
        pytest.skip(why)
    file = tmp_path / "wrong.cl"
    file.write_text(BROKEN["no test at the left and right"][0])
    result = tilewright.verify(file, small, seed=7)
    assert "border not tested" in str(result) and not result.passed
    assert str(pickle.loads(pickle.dumps(result))) == str(result)
    assert main(["kernel", "check", str(file), "--net", "ece408", "--seed", "7"]) == 1
    assert capsys.readouterr().out == f"{result}\n"


def test_a_record_says_what_made_it(small, pixels, monkeypatch):
    """A program's own arguments are none of a record's business."""
    monkeypatch.setattr(sys, "argv", ["/somewhere/program.py", "--password", "secret"])
    result = tilewright.run(small, data=pixels, **FEW)
    assert result.record.environment.command == ("python", "program.py")
