"""Every mistake that can be planted is found, and called by its name."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rungs.own.test_rung import needs_opencl
from tilewright.cli import main
from tilewright.model import zoo
from tilewright.rungs import find
from tilewright.runtime.device import CPU, OPENCL
from tilewright.truth.diagnose import diagnose, words
from tilewright.truth.planted import MISTAKES, changes, mistakes_for, planted
from tilewright.truth.quick import quick
from tilewright.truth.verify import prove

NAMED = {
    "bias": words.BIAS, "neighbour": words.BIAS_OTHER, "axes": words.TRANSPOSED,
    "mirror": words.FLIPPED, "tap": words.TAP_MISSING, "channel": words.CHANNEL_MISSING,
    "rounded": words.PRECISION, "edge": words.PADDING, "border": words.PADDING,
    "last-column": words.NEVER_WRITTEN,
}  # fmt: skip
BY_NAME = {mistake.name: mistake for mistake in MISTAKES}


def found(rung, name, device):
    tried = quick(rung.precision, [zoo.network("cifar10")], np.random.default_rng(1))
    fault = prove(planted(rung, BY_NAME[name]), device, tried, 1).fault
    assert fault is not None, f"{name} was not found"
    return diagnose(fault.evidence).words


@pytest.mark.parametrize("name", [each.name for each in mistakes_for(find("im2col"), CPU)])
def test_each_is_found_on_the_cpu_and_named(name):
    assert found(find("im2col"), name, CPU)[0] == NAMED[name]


@pytest.mark.parametrize("name", ["bias", "edge"])
def test_they_are_named_where_the_pixels_are_part_of_the_convolution(name):
    assert found(find("fused"), name, CPU)[0] == NAMED[name]


def test_pictures_are_changed_only_where_they_lie_in_the_hosts_memory():
    def blind(rung, device):
        return [each for each in mistakes_for(find(rung), device) if each.blind]

    assert blind("fused", CPU)
    assert not blind("torch", CPU) and not blind("direct", OPENCL)


@needs_opencl
@pytest.mark.parametrize("name", ["border", "last-column"])
def test_mistakes_in_a_kernels_text_are_found_and_named(name):
    assert found(find("direct"), name, OPENCL)[0] == NAMED[name]


@needs_opencl
def test_missing_barriers_are_found():
    assert found(find("shared"), "barrier", OPENCL)


@needs_opencl
def test_the_changed_lines_are_shown_and_only_kernels_with_the_place_are_changed():
    (before, after), *_ = changes(find("shared"), BY_NAME["border"], OPENCL)
    assert "xx >= 0" in before and "xx > 0" in after
    assert "barrier" not in {each.name for each in mistakes_for(find("direct"), OPENCL)}


def test_the_report_has_every_mistake(capsys):
    assert main(["break", "im2col", "--net", "cifar10", "--mistake", "bias"]) == 0
    text = capsys.readouterr().out
    assert "planted: the bias is forgotten" in text
    assert "WRONG: conv" in text and "bias forgotten:" in text
    assert text.splitlines()[-1].split()[-5:] == ["forgotten", "yes", "1", "bias", "forgotten"]


def test_a_mistake_that_nobody_makes_is_refused(capsys):
    assert main(["break", "im2col", "--mistake", "typo"]) == 2
    assert "unknown mistake 'typo'" in capsys.readouterr().err


def test_a_mistake_without_a_place_names_those_with_one(capsys):
    assert main(["break", "im2col", "--mistake", "barrier"]) == 2
    said = capsys.readouterr().err
    assert "no place for the mistake 'barrier'; it has one for: bias, neighbour" in said
