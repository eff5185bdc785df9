"""What tests of the command line share."""

from __future__ import annotations

from functools import cache

import pytest

from tilewright.measure import peak
from tilewright.profiling import ceilings

measured_once = cache(ceilings.measure)


@pytest.fixture(autouse=True)
def quick_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real ones, measured once, with less of everything: the machine is always busy here, and they
    would be again."""
    monkeypatch.setattr(peak, "REPEATS", 1)
    monkeypatch.setattr(peak, "CPU_REPEATS", 2)
    monkeypatch.setattr(peak, "BLOCKS_EACH", 8)
    monkeypatch.setattr(peak, "MOVED_BYTES", 2**24)
    monkeypatch.setattr(ceilings, "measure", measured_once)
