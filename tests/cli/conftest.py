"""What tests of the command line share."""

from __future__ import annotations

from functools import cache

import pytest

from tilewright.profiling import ceilings

measured_once = cache(ceilings.measure)


@pytest.fixture(autouse=True)
def quick_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real ones, measured once: the machine is always busy here, and they would be again."""
    monkeypatch.setattr(ceilings, "measure", measured_once)
