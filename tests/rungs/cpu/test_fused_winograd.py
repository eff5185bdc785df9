"""`fused` by Winograd's algorithm: a class of its own, which must be asked for, and is proven."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tilewright
from tilewright import climb
from tilewright.fuse.cpu import parameters
from tilewright.model import zoo
from tilewright.model.layers import Convolution, MaxPool, Pixels, ReLU
from tilewright.model.network import Network
from tilewright.precision import FP32_WINOGRAD4
from tilewright.rungs import choose
from tilewright.runtime.device import CPU
from tilewright.truth import reference
from tilewright.truth.trials import layer_trials, random_parameters
from tilewright.truth.verify import prove

SMALL = Network("small", Pixels((16, 8, 8)), (Convolution(24, 3, padding=1), ReLU(), MaxPool(2)))
WIDE = Network("wide", Pixels((64, 8, 8)), (Convolution(64, 3, padding=1), ReLU()))
pytestmark = pytest.mark.usefixtures("not_optimised")


def test_it_is_never_the_default():
    plain, fast = choose(CPU, "fused"), choose(CPU, "fused", "fp32-winograd4")
    assert (plain.label, fast.label) == ("fused", "fused fp32-winograd4")
    assert plain.plan(CPU, SMALL.stages, plain.precision)["winograd"] == []
    assert fast.plan(CPU, SMALL.stages, fast.precision)["winograd"] == ["conv"]
    assert plain.tried_ways == plain.ways
    assert {"images": "many", "winograd": "all"} in fast.tried_ways


def proof(count):
    """The first trials of a convolution whose last tiles hang over, too small to pay."""
    rung, layer = choose(CPU, "fused", "fp32-winograd4"), Convolution(2, 3, padding=1)
    drawn = layer_trials((3, 5, 6), layer, rung.precision, np.random.default_rng(1))
    return prove(rung, CPU, itertools.islice(drawn, count), seed=1)


def test_it_is_proven_where_it_would_not_be_chosen():
    verdict = proof(20)
    assert verdict.fault is None and verdict.trials > 5


def test_weights_that_are_rounded_more_than_once_are_found(monkeypatch):
    """The bound is that of float32, not a looser one."""
    usual = parameters._pack_winograd

    def rounded(group, weight, bias, packed):
        usual(group, weight, bias, packed)
        packed[:] = packed.astype(np.float16)

    monkeypatch.setattr(parameters, "_pack_winograd", rounded)
    assert proof(20).fault is not None


def test_a_compiled_network_computes_so_if_asked():
    network = SMALL.with_parameters(random_parameters(SMALL, np.random.default_rng(0)))
    images = np.random.default_rng(1).normal(size=(40, 16, 8, 8)).astype(np.float32)
    direct = tilewright.compile(network)(images)
    fast = tilewright.compile(network, precision="fp32-winograd4")(images)
    truth = reference.chain(network.stages, network.parameters, images, FP32_WINOGRAD4)[-1]
    assert (np.abs(fast - truth.value) <= truth.bound).all()
    assert not np.array_equal(fast, direct)


@pytest.mark.parametrize(("network", "rows"), [(zoo.network("cifar10"), 1), (SMALL, 2), (WIDE, 3)])
def test_the_ladder_has_rows_for_it_where_it_is_chosen_for_any_layer(network, rows):
    fused = [rung for rung in climb._chosen(CPU, ["fused"]) if climb._new(rung, network, CPU)]
    assert len(fused) == rows
    assert fused[0].label == "fused"
