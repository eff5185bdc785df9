from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from tests.profiling.made import LAYERS, profile, profiles
from tilewright.errors import TilewrightError
from tilewright.profiling.compare import compare, record
from tilewright.profiling.tally import Row
from tilewright.results import document


def test_what_moved():
    found = compare(profile("direct"), profile("tuned", factor=0.5))
    assert not found.per_image
    wall = {change.name: (change.before, change.after) for change in found.wall}
    assert wall["wall"] == (0.030, 0.015)
    assert wall["kernels"] == (0.010, 0.005)
    kernels = {change.name: change for change in found.kernels}
    assert (kernels["direct_conv"].calls_before, kernels["direct_conv"].calls_after) == (2, 0)
    assert (kernels["tuned_conv"].calls_before, kernels["tuned_conv"].calls_after) == (0, 2)
    assert kernels["layer_relu"].seconds == pytest.approx(-1e-3)
    layers = {change.name: change for change in found.layers}
    assert layers["conv1"].before == pytest.approx(12e-3)
    assert layers["conv1"].after == pytest.approx(6e-3)
    for changes in (found.layers, found.kernels, found.calls):
        moved = [abs(change.seconds) for change in changes]
        assert moved == sorted(moved, reverse=True)


def test_layers_that_one_of_them_fused_are_compared_together():
    whole = profile(rows=(Row("kernel", "fused", ("conv1", "relu1"), 1, 2.0, 2.0, 2.0),))
    names = {change.name: change for change in compare(profile(), whole).layers}
    assert set(names) == {"conv1..relu1", "input"}
    assert names["conv1..relu1"].before == pytest.approx(14e-3)
    assert names["conv1..relu1"].after == 2.0


def test_other_numbers_of_images_are_compared_image_by_image():
    found = compare(profile(), replace(profile(), images=4))
    assert found.per_image
    wall = {change.name: (change.before, change.after) for change in found.wall}
    assert wall["wall"] == (0.015, 0.0075)
    assert wall["without recording"] == (0.0105, 0.0105 / 2)


def test_a_run_that_was_cut_short_has_no_whole_run_to_compare_with():
    found = compare(profile(), profile(stopped="interrupted after 1 of 2 images"))
    assert [change.name for change in found.wall][:2] == ["wall", "kernels"]


def test_other_networks_are_refused():
    with pytest.raises(TilewrightError, match="their layers are not the same"):
        compare(profile(), replace(profile(), layers=LAYERS[:2]))
    with pytest.raises(TilewrightError, match="before any image"):
        compare(profile(), replace(profile(), images=0))


@given(profiles, profiles)
def test_nothing_is_lost(before, after):
    if not before.images or not after.images:
        return
    found = compare(before, after)
    document.text(record(found))
    kinds = ("kernel", "copy", "memset", "host")
    assert sum(c.calls_before for c in found.kernels) == sum(r.calls for r in before.of(*kinds))
    assert sum(c.calls_after for c in found.layers) == sum(r.calls for r in after.of(*kinds))
