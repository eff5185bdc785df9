from __future__ import annotations

from dataclasses import replace

import pytest

from tests.profiling.made import CEILINGS, LAYERS, profile
from tilewright.profiling.result import Layer
from tilewright.profiling.roofline import roofline
from tilewright.profiling.tally import Row


def kernel(seconds, flops, size, shapes=(((640, 1, 1), (32, 1, 1)),), calls=1):
    row = Row("kernel", "k", ("conv1",), calls, seconds, seconds, seconds,
              flops=flops, least_bytes=size, shapes=shapes)  # fmt: skip
    (facts,) = roofline(profile(rows=(row,)))
    return facts


def test_rates_and_shares():
    facts = kernel(1e-3, 500_000_000, 10_000_000)
    assert facts.flop_rate == pytest.approx(5e11)
    assert facts.byte_rate == pytest.approx(1e10)
    assert facts.flop_share == pytest.approx(0.5)
    assert facts.byte_share == pytest.approx(0.1)
    assert facts.intensity == 50
    assert facts.limit == "arithmetic"


@pytest.mark.parametrize(
    ("facts", "limit"),
    [
        (kernel(1e-3, 1000, 60_000_000), "memory bandwidth"),
        (kernel(1e-3, 1000, 160_000_000), "caches: more than memory gives"),
        (kernel(1e-3, 1_000_000, 1_000_000), "latency: 1 % of memory bandwidth"),
        (kernel(1e-6, 1000, 1000), "too short: mostly start and end"),
        (kernel(1e-3, 10**9, 1, (((2, 1, 3), (8, 1, 1)),)), "too few blocks: 6 for 16"),
    ],
)
def test_the_limit_in_words(facts, limit):
    assert facts.limit == limit


def test_without_ceilings_rates_are_known_and_the_limit_is_not():
    facts = roofline(profile(ceilings=None))[0]
    assert facts.flop_rate > 0
    assert (facts.flop_share, facts.limit) == (None, "not known: no ceilings")
    blind = replace(CEILINGS, flops=None, bytes=None)
    assert roofline(profile(ceilings=blind))[0].flop_share is None


def test_nobody_knows_the_work_of_a_batch_that_was_cut_short():
    row = Row("kernel", "network", ("conv1", "relu1"), 4, 1.0, 0.1, 0.4)
    assert roofline(profile(rows=(row,), stopped="interrupted after 1 of 2 images")) == []


def test_a_kernel_without_an_account_has_its_layers_if_it_is_their_only_one():
    row = Row("kernel", "network", ("conv1", "relu1"), 4, 1.0, 0.1, 0.4)
    (facts,) = roofline(profile(rows=(row,)))
    # Two images, four launches; what conv1 gives to relu1 stays in the kernel.
    assert (facts.flops, facts.bytes) == (2 * 2_000_000, 2 * (12_288 + 65_536) + 4 * 4864)
    second = Row("kernel", "helper", ("relu1",), 1, 1.0, 1.0, 1.0)
    assert [each.row.name for each in roofline(profile(rows=(row, second)))] == []


def test_layers_nobody_knows_have_no_work():
    row = Row("kernel", "k", ("conv9",), 1, 1.0, 1.0, 1.0)
    assert roofline(profile(rows=(row,))) == []
    assert roofline(profile(rows=(replace(row, layers=()),))) == []
    known = (Layer("conv9", "conv", 5, 7, 7, 7),)
    assert roofline(profile(rows=(row,), layers=known))[0].flops == 10


def test_the_share_of_the_peak_is_without_taps_that_are_left_out():
    row = Row("kernel", "fused_conv1", ("conv1",), 1, 1e-5, 1e-5, 1e-5)
    layers = tuple(replace(each, inside_flops=each.flops * 4 // 5) for each in LAYERS)
    whole, skipping = (
        roofline(profile(rows=(row,), layers=layers, skips_taps=skips))[0]
        for skips in (False, True)
    )
    assert whole.flop_rate == skipping.flop_rate  # the customary count
    assert whole.flop_share == pytest.approx(0.4)
    assert skipping.flop_share == pytest.approx(0.32)
    # A profile of before does not know them.
    (before,) = roofline(profile(rows=(row,), skips_taps=True))
    assert before.flop_share == pytest.approx(0.4)
