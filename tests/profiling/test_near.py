"""A run beside its device's peak: words by what a layer reached."""

from __future__ import annotations

import pytest

from tests.profiling.made import CEILINGS
from tests.results import made
from tilewright.profiling import near
from tilewright.results.run import LayerTime


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """10^12 FLOP and 10^11 bytes a second."""
    monkeypatch.setattr(near, "ceilings", lambda *given, **more: (CEILINGS, None))


def limit_of(seconds, flop, size, launches=1, device="cpu"):
    layer = LayerTime(name="conv1", kind="conv", seconds=seconds, flop=flop, executed_flop=flop,
                      least_bytes=size, launches=launches)  # fmt: skip
    run = near.beside_peak(made.run_record(layers=(layer,), device=device))
    assert run.peak_flops == CEILINGS.flops
    return run.layers[0].limit


def test_what_is_reached_holds_it_up():
    assert limit_of(1.0, flop=5 * 10**11, size=1000) == "arithmetic"
    assert limit_of(1.0, flop=10**9, size=5 * 10**10) == "memory bandwidth"
    assert limit_of(1.0, flop=10**9, size=5 * 10**11) == "caches: more than memory gives"


def test_what_is_far_from_any_limit_waits():
    assert limit_of(1.0, flop=10**11, size=1000) == "latency: 10 % of arithmetic"
    short = limit_of(1e-3, flop=10**6, size=10, launches=1000, device="cuda")
    assert short == "too short: mostly start and end"


def test_what_computes_nothing_has_no_limit():
    assert limit_of(1.0, flop=0, size=1000) == ""
