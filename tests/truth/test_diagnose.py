"""Every broken kernel is refused for the right reason; right ones, however unusual, pass."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.own_kernels import BROKEN, DIRECT, RIGHT, kernel_file
from tilewright.judge.check import _whole
from tilewright.model import zoo
from tilewright.model.layers import Convolution
from tilewright.model.layers.convolution import convolve
from tilewright.precision import FLOAT32
from tilewright.rungs.cpu import im2col
from tilewright.rungs.own import load
from tilewright.runtime import opencl
from tilewright.runtime.device import CPU, OPENCL
from tilewright.runtime.dialect import LARGEST_GRID_Z
from tilewright.truth.diagnose import diagnose, words
from tilewright.truth.diagnose.case import Case
from tilewright.truth.diagnose.mistakes import mistakes
from tilewright.truth.quick import SHAPES, quick
from tilewright.truth.trials import IMAGES, layer_trials
from tilewright.truth.verify import Verdict, prove

SEED = 7
needs_opencl = pytest.mark.skipif(
    bool(opencl.missing(OPENCL)), reason="no OpenCL device: tilewright[opencl]"
)


def proven(
    text: str, folder: Path, small: bool = True, large: bool = True, first: int = 0
) -> Verdict:
    """What becomes of a kernel file in small batches, from one of the shapes on, and in large ones;
    without the zoo's layers."""
    path = folder / "mine.cl"
    path.write_text(text)
    rung = load(str(path))
    every = quick(rung.precision, (), np.random.default_rng(SEED))
    shapes = [shape for shape, _ in SHAPES[first:]] if small else []
    trials = (
        trial
        for trial in every
        if (trial.network.input.shape in shapes if trial.capacity <= IMAGES else large)
    )
    return prove(rung, OPENCL, trials, SEED, repeatable=True)


# What takes more than one tile to show, or a large batch: the first of the shapes that shows it.
# `make deep` tries those before it, too.
SHOWN_BY = {
    "halo too small": 3,
    "wrong edge of the tile": 3,
    "index of 16 bits": len(SHAPES),
}


@needs_opencl
@pytest.mark.parametrize("name", BROKEN)
def test_broken_kernels_are_refused_for_the_right_reason(name, tmp_path, one_in, request):
    text, word = BROKEN[name]
    if SHOWN_BY.get(name, 0) < len(SHAPES):  # the first launches show it; else there are thousands
        request.getfixturevalue("not_optimised")
    fault = proven(text, tmp_path, first=SHOWN_BY.get(name, 0) if one_in > 1 else 0).fault
    assert fault is not None
    found = diagnose(fault.evidence)
    assert found.words[0] in word.split(" or "), found
    assert "conv (" in found.headline


@needs_opencl
@pytest.mark.parametrize("name", RIGHT)
def test_right_kernels_pass_in_their_class(name, tmp_path, one_in):
    """All shapes by one of them; of the others, which add otherwise, those from the longest sums
    on."""
    usual = name == "direct"
    verdict = proven(RIGHT[name], tmp_path, large=usual, first=0 if usual or one_in == 1 else 2)
    assert verdict.passed, verdict.fault
    assert verdict.trials >= len(SHAPES)


WRONG_LATE = "float sum = bias[filter] + (image > {});"


@needs_opencl
def test_what_is_wrong_with_the_thousandth_image_alone_is_found(tmp_path):
    text = kernel_file(DIRECT, ("float sum = bias[filter];", WRONG_LATE.format(1000)))
    found = diagnose(proven(text, tmp_path, small=False).fault.evidence)
    assert words.LATER_IMAGES in found.words


def test_a_thorough_proof_begins_with_more_images_than_a_grid_holds():
    trial = next(_whole(FLOAT32, (), np.random.default_rng(SEED)))
    assert trial.capacity > LARGEST_GRID_Z and len(trial.calls[0]) == trial.capacity
    assert all(a != b for a, b in pairwise(trial.calls[0]))  # no image is its neighbour's


def test_few_layers_of_many_networks_and_all_of_one_are_tried():
    networks = [make() for make in zoo.ZOO.values()]
    tried = [t.inputs for t in quick(FLOAT32, networks, np.random.default_rng(SEED))]
    of = [sum(f" of {n.name})" in words for words in tried) for n in networks]
    assert min(of) > 0 and max(of) <= 6  # two kinds of numbers each
    largest = max(networks, key=lambda n: len(n.stages))
    alone = [t.inputs for t in quick(FLOAT32, [largest], np.random.default_rng(SEED))]
    assert sum(f" of {largest.name})" in words for words in alone) > 6


def test_results_that_differ_between_runs_are_a_race():
    """Even if both are within the bound: a kernel without atomics gives the same bits."""
    generator = np.random.default_rng(SEED)

    def prepare(runtime, stages, parameters, *choices):
        right = im2col.RUNG.prepare(runtime, stages, parameters, *choices)

        def launch(x, out):
            right(x, out)
            out[:, -1] *= 1 + np.float32(2.0**-23) * generator.integers(0, 2)

        return launch if stages[0].kind == "conv" else right

    rung = replace(im2col.RUNG, prepare=prepare)
    shape = ((9, 7, 6), Convolution(4, 3))
    found = [t for t in layer_trials(*shape, FLOAT32, generator) if t.inputs == "real numbers"] * 9
    assert prove(rung, CPU, found, SEED).passed
    fault = prove(rung, CPU, found, SEED, repeatable=True).fault
    diagnosis = diagnose(fault.evidence)
    assert diagnosis.words[0] == words.RACE
    assert "differ between two runs" in diagnosis.headline
    assert "the first time" in diagnosis.first


@needs_opencl
@pytest.mark.usefixtures("not_optimised")
def test_a_picture_shows_where(tmp_path):
    text = kernel_file(DIRECT, ("column < TW_OUT_X &&", "column < TW_OUT_X / 8 * 8 &&"))
    found = diagnose(proven(text, tmp_path).fault.evidence)
    assert found.words[:2] == (words.NEVER_WRITTEN, words.LAST_TILE)
    title, axis, *rows = found.picture
    assert title == "image 0, filter 0, 11 x 13 outputs (. right, # wrong, o never written):"
    assert axis.split() == ["x", "=", "0", "to", "12"]
    assert [row.split()[1] for row in rows] == ["........ooooo"] * 11


def case(layer: Convolution, channels: int = 3, height: int = 9, width: int = 8) -> Case:
    generator = np.random.default_rng(SEED)
    shape = (layer.filters, channels, *layer.kernel)
    return Case(
        generator.normal(size=(2, channels, height, width)),
        generator.normal(size=shape),
        generator.normal(size=layer.filters),
        layer,
    )


LAYERS = [
    Convolution(4, 3, padding=1),
    Convolution(2, (3, 2), stride=(2, 1), padding=(1, 0)),
    Convolution(3, 2, stride=3),
]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.summary)
def test_a_case_without_a_mistake_is_the_reference(layer):
    made = case(layer)
    expected = convolve(made.x, made.weight, layer) + made.column
    assert np.allclose(made.right, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.summary)
def test_no_mistake_gives_what_is_right(layer):
    made = case(layer)
    for mistake in mistakes(made):
        known = np.isfinite(mistake.output)
        same = np.isclose(mistake.output, made.right, rtol=1e-9, atol=1e-9)
        assert mistake.output.shape == made.right.shape
        assert not same[known].all() or mistake.word in (words.PADDING, words.STRIDE), mistake.text


def test_every_word_is_explained():
    """docs/checking.md has a row for each, and no other."""
    page = (Path(__file__).parents[2] / "docs" / "checking.md").read_text()
    table = page[page.index("| word |") : page.index("## Races")]
    cells = (row.split("|")[1] for row in table.split("\n") if row.startswith("| `"))
    explained = {word for cell in cells for word in re.findall(r"`([^`]+)`", cell)}
    known = {value for name, value in vars(words).items() if name.isupper()}
    assert explained == known
