"""What rungs with generated kernels offer."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.choice import Choice
from tilewright.fuse.cuda.cut import build, few_of
from tilewright.model import zoo
from tilewright.rungs import DEFAULT_BATCH, find
from tilewright.rungs.gpu import generated
from tilewright.rungs.gpu.generated import OTHERS_UP_TO, network_candidates
from tilewright.runtime.device import CUDA


def test_whatever_is_tried_for_many_images_few_have_their_own(monkeypatch):
    """Else a trial with one image would choose among kernels that are not made for it."""
    monkeypatch.setattr(generated.cuda, "gpu", lambda index: SimpleNamespace(capability=90))
    rung, stages = find("network").at("fp32"), zoo.network("ece408").stages
    own, *others = rung.choices(CUDA, stages)
    assert own["few"] and own["few_up_to"] >= 16
    assert others and all(each["kernels"] != own["kernels"] for each in others)
    assert all(each["few"] == own["few"] for each in others)
    assert {each["few_up_to"] for each in others} == {min(own["few_up_to"], OTHERS_UP_TO)}


@pytest.mark.parametrize("precision", ARITHMETICS)
def test_candidates_differ_at_the_batch_they_are_timed_with(precision, monkeypatch):
    monkeypatch.setattr(generated.cuda, "gpu", lambda index: SimpleNamespace(capability=90))
    stages, arithmetic = zoo.network("cifar10").stages, ARITHMETICS[precision]
    offered = network_candidates(CUDA, stages, arithmetic.precision)
    choices = [Choice.of(options) for options in itertools.islice(offered, 6)]
    found = [build(stages, arithmetic, 90, each, few_of(each, DEFAULT_BATCH)) for each in choices]
    assert all(one != other for one, other in itertools.combinations(found, 2))
