"""Trials come back from their journal as they were."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilewright.errors import TilewrightError
from tilewright.tune.search import Candidate, Tried
from tilewright.tune.trials import Trials

ONE = Tried(Candidate.of("tuned", "fp32", {"order": [1, 2], "rows": 4}), (1e-3, 2e-3))
OTHER = Tried(Candidate("shared", "fp32"), problem="shared_conv does not fit")


def written(path: Path) -> None:
    trials = Trials(path, {})
    trials.keep("conv1", ONE)
    trials.keep("conv2", OTHER)
    trials.journal.close()


def test_what_was_kept_is_known_the_next_time(tmp_path: Path) -> None:
    written(tmp_path / "trials")
    known = Trials(tmp_path / "trials", {}).known
    assert known == {"conv1": {ONE.candidate: ONE}, "conv2": {OTHER.candidate: OTHER}}


@pytest.mark.parametrize(
    "change",
    [{"seconds": [-1.0]}, {"seconds": ["x"]}, {"seconds": []}, {"seconds": [float("nan")]},
     {"options": 3}, {"options": [["rows", 4]]}, {"problem": "no"}, {"options": None}],
)  # fmt: skip
def test_a_line_that_is_no_trial_is_named(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "trials"
    written(path)
    lines = path.read_text().splitlines()
    lines[1] = json.dumps({**json.loads(lines[1]), **change})
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(TilewrightError, match="line 2: not as it was written"):
        Trials(path, {})
