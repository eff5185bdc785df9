from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests import cpu_level
from tilewright.fuse.cpu import build


@pytest.mark.parametrize("level", ["avx2", "avx", "sse"])
def test_the_option_makes_the_cpu_a_lesser_one(level, monkeypatch):
    wanted = build.restricted(level)
    monkeypatch.setattr(build, "_features", build._features)  # and back again after the test
    cpu_level.pytest_configure(SimpleNamespace(getoption={"--cpu": level}.get))
    assert build.host() == wanted
