"""What rungs with generated kernels offer."""

from __future__ import annotations

from types import SimpleNamespace

from tilewright.model import zoo
from tilewright.rungs import find
from tilewright.rungs.gpu import generated
from tilewright.runtime.device import CUDA


def test_whatever_is_tried_for_many_images_few_have_their_own(monkeypatch):
    """Else a trial with one image would choose among kernels that are not made for it."""
    monkeypatch.setattr(generated.cuda, "gpu", lambda index: SimpleNamespace(capability=90))
    rung, stages = find("network").at("fp32"), zoo.network("ece408").stages
    own, *others = rung.choices(CUDA, stages)
    assert own["few"] and own["few_up_to"] >= 16
    assert others and all(each["kernels"] != own["kernels"] for each in others)
    assert all(each["few"] == own["few"] for each in others)
    assert {each["few_up_to"] for each in others} == {own["few_up_to"]}
