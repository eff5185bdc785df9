"""Every device answers in float32, unless it is asked for less."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright import rungs as ladder
from tilewright.errors import TilewrightError
from tilewright.model import zoo
from tilewright.plan import uniform
from tilewright.precision import FLOAT32
from tilewright.rungs import choose, rungs
from tilewright.rungs.gpu import explain, network, tensor
from tilewright.rungs.rung import Rung, never_missing
from tilewright.runtime.device import CUDA, DEVICES


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were a GPU."""
    found = {device: [_able(rung) for rung in rungs(device)] for device in DEVICES}
    monkeypatch.setattr(ladder, "rungs", lambda device: found[device])


def _able(rung: Rung) -> Rung:
    return replace(rung, missing=never_missing)


@pytest.mark.usefixtures("here")
def test_what_is_not_asked_for_is_float32() -> None:
    for device in DEVICES:
        assert choose(device, None).precision.name == "fp32"
    assert choose(CUDA, None).label == choose(CUDA, "network").label == "network fp32"
    assert choose(CUDA, None, "fp16").label == "network fp16"


def test_rungs_do_what_they_say() -> None:
    for device in DEVICES:
        for rung in rungs(device):
            assert rung.precision.name == "fp32" or FLOAT32 not in rung.precisions


def test_what_a_rung_is_made_with_is_what_it_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr("tilewright.fuse.cuda.run.FusedNetwork", lambda *given: made.append(given))
    monkeypatch.setattr("tilewright.runtime.cuda.gpu", lambda index: explain.REFERENCE)
    cifar10 = zoo.network("cifar10")
    for rung in (network.RUNG, network.RUNG.at("tf32")):
        (step,) = uniform(cifar10, rung, CUDA, 1).steps
        assert step.precision == rung.precision.name
        rung.prepare(None, cifar10.stages, {}, step.options, rung.precision)
    assert [given[2] for given in made] == ["fp32", "tf32"]


@pytest.mark.usefixtures("here")
def test_a_rung_that_cannot_asks_for_a_name() -> None:
    words = r"^rung 'tensor' cannot compute in fp32: name --precision fp16 or tf32 or tf32x3$"
    with pytest.raises(TilewrightError, match=words):
        choose(CUDA, "tensor")
    with pytest.raises(TilewrightError, match="it computes in fp16 or tf32 or tf32x3"):
        choose(CUDA, "tensor", "fp32")
    assert choose(CUDA, "tensor", "tf32").label == "tensor tf32"


@pytest.mark.usefixtures("here")
def test_a_precision_that_was_named_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain.cuda, "limits", lambda index: explain.USUAL)
    monkeypatch.setattr(explain.cuda, "gpu", lambda index: explain.REFERENCE)
    assert explain.target(CUDA, tensor.RUNG.at("tf32")).gpu == explain.REFERENCE
