"""docs/outputs.md: every command runs, in a cheap form, and its output has what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from tests.profiling.made import CEILINGS
from tests.rungs.own.test_rung import needs_opencl
from tests.test_climb import quick, trusting  # noqa: F401
from tilewright.cli import main
from tilewright.errors import TilewrightError
from tilewright.model.formats import weights
from tilewright.model.load import load
from tilewright.profiling import ceilings, start
from tilewright.rungs import choose
from tilewright.runtime.device import CPU
from tilewright.truth.trials import random_parameters

PAGE = Path(__file__).resolve().parents[1] / "docs" / "outputs.md"
ROW = re.compile(r"^\| (.+?) \| `tilewright (.+?)` \| (.+?) \|$", re.MULTILINE)
ROWS = ROW.findall(PAGE.read_text())
# Executed by tests of their own: tests/cli/test_kernel*.py and test_train.py, tests/views/report.
ELSEWHERE = ("kernel", "train", "report")
# Words that need a GPU, data or a package that may not be here, by the start of the command.
ON_CUDA = ("run --rung torch --device cuda",)
DESCRIBED = {
    "name": "small",
    "input": {"shape": [1, 7, 7]},
    "layers": [
        {"type": "convolution", "filters": 2, "kernel": 3},
        {"type": "relu"},
        {"type": "convolution", "filters": 2, "kernel": 3},
        {"type": "fully_connected", "outputs": 3},
        {"type": "softmax"},
    ],
}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A network with its weights, and pictures with labels."""
    folder = tmp_path_factory.mktemp("small")
    described, numbers = load(DESCRIBED), np.random.default_rng(1)
    network = described.with_parameters(random_parameters(described, numbers))
    weights.save(network, folder / "small.safetensors")
    pixels = numbers.integers(0, 256, (4, 1, 7, 7), np.uint8)
    np.savez(folder / "images.npz", images=pixels, labels=np.array([0, 1, 2, 0]))
    return folder


def cheap(command, small):
    """The same on a small network, four images and PoCL."""
    words = shlex.split(command)
    for option in ("--net", "--images", "--data", "--trace"):
        if option in words:
            at = words.index(option)
            del words[at : at + 2]
    words = ["opencl" if word == "cuda" else word for word in words]
    words += ["--net", str(small / "small.safetensors")]
    if words[0] != "explain":
        words += ["--data", str(small / "images.npz"), "--images", "4"]
    if "--trace" in shlex.split(command):
        words += ["--trace", str(small / "timeline.json")]
    if words[0] in ("profile", "ladder"):
        words += ["--repeats", "1"]
    if words[0] == "ladder" and "--rungs" not in words:
        words += ["--rungs", "direct,shared"]
    return words


def test_the_page_has_every_kind_of_command():
    verbs = {command.split()[0] for _, command, _ in ROWS}
    assert verbs == {"run", "ladder", "profile", "explain", *ELSEWHERE}
    assert len(ROWS) > 25


COMMANDS = {
    command: [where for _, same, where in ROWS if same == command] for _, command, _ in ROWS
    if not command.startswith((*ELSEWHERE, *ON_CUDA))
}  # fmt: skip


@needs_opencl
@pytest.mark.usefixtures("quick", "trusting", "not_optimised")
@pytest.mark.parametrize(
    "command",
    [
        # By the worker that compiles them for tests/rungs/cpu/test_explain.py, too.
        pytest.param(command, marks=pytest.mark.xdist_group("explained loops"))
        if command.startswith(("explain serial", "explain threads"))
        else command
        for command in COMMANDS
    ],
)
def test_the_output_has_what_the_page_says(command, small, monkeypatch, capsys):
    if "onnxruntime" in command and (reason := choose_reason("onnxruntime")):
        pytest.skip(reason)
    known = ceilings.Known(CEILINGS, "")
    monkeypatch.setattr(ceilings, "measure", lambda *given: known)
    monkeypatch.setattr(start, "recorded", start.record)  # a new process takes seconds
    assert main(cheap(command, small)) == 0
    text = capsys.readouterr().out
    text += " ".join(text.split())  # headings of two lines, sentences of several
    for where in COMMANDS[command]:
        wanted = re.findall(r"`([^`]+)`", where)
        assert [words for words in wanted if words not in text] == [], text


def choose_reason(rung):
    try:
        choose(CPU, rung)
    except TilewrightError as error:
        return str(error)
    return None
