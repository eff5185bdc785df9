"""One submission on PoCL: its outcome. One that is right is in tests/classroom/test_judging.py."""

from __future__ import annotations

import pytest

from tests.judge.test_bench import LABELS, NETWORK, PIXELS, quick  # noqa: F401 - a fixture
from tests.own_kernels import DIRECT, kernel_file
from tilewright.data.dataset import Dataset
from tilewright.judge import sandbox
from tilewright.judge.referee import Referee
from tilewright.judge.submissions import Submission
from tilewright.model.layers import Convolution
from tilewright.rungs import choose
from tilewright.runtime.device import OPENCL
from tilewright.runtime.opencl import missing

pytestmark = [
    pytest.mark.skipif(missing(OPENCL) is not None, reason="needs PoCL"),
    pytest.mark.skipif(bool(sandbox.protection().missing), reason="needs Landlock and seccomp"),
    pytest.mark.usefixtures("quick_workers", "not_optimised"),
]


@pytest.fixture
def referee(monkeypatch: pytest.MonkeyPatch) -> Referee:
    shape = ((3, 11, 13), Convolution(5, 3, padding=1))
    monkeypatch.setattr("tilewright.truth.quick.SHAPES", (shape,))
    dataset = Dataset("drawn", PIXELS, LABELS, "drawn")
    return Referee(
        NETWORK, dataset, OPENCL, 4, choose(OPENCL, "direct"), seed=7, rounds=1, limit=60,
        words=lambda checked: checked.problem,
    )  # fmt: skip


def handed_in(text: str) -> Submission:
    return Submission("anna", "anna.cl", text.encode())


def test_the_likeliest_mistake_comes_first(referee: Referee):
    found = referee(handed_in(kernel_file(DIRECT, ("sum = bias[filter]", "sum = 0"))))
    assert found.outcome == "wrong" and found.reason.startswith("bias forgotten: conv (")


def test_less_precision_than_all_are_compared_in_is_refused(referee: Referee):
    found = referee(handed_in(kernel_file(DIRECT, more='precision = "tf32"')))
    assert found.outcome == "refused"
    assert found.reason == "it is right in tf32, and all are compared in fp32, the class of direct"
