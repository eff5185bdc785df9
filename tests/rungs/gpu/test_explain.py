from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

import tilewright
from tests.profiling.made import profile
from tilewright.errors import TilewrightError
from tilewright.limits import rates_of
from tilewright.model.layers import AveragePool, Convolution, Flatten, Pixels
from tilewright.model.network import Network
from tilewright.profiling.result import Ceilings
from tilewright.profiling.roofline import roofline
from tilewright.profiling.tally import Tally
from tilewright.rungs import find, rungs
from tilewright.rungs.gpu.explain import USUAL, Target, chosen, explain, target
from tilewright.runtime import cuda, nvrtc
from tilewright.runtime.device import CUDA
from tilewright.runtime.dialect import Limits
from tilewright.runtime.multiprocessor import REFERENCE
from tilewright.trace import Event

RUNGS = [rung for rung in rungs(CUDA) if rung.convolutions is not None]
HERE = Target(USUAL, REFERENCE)
RESULTS = Path(__file__).parents[3] / "benchmarks" / "results" / "2026-11-15-ladder-h200.json"


@pytest.fixture
def no_compiler(monkeypatch):
    """What a compiler says is not asked for: most of this follows from designs alone."""
    monkeypatch.setattr(nvrtc, "missing", lambda: "none here")


def facts(rung, layer, images=100, net="cifar10", at=HERE):
    network = tilewright.load(net)
    (found,) = explain(find(rung), chosen(network, layer), at, images)
    return found


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)
@pytest.mark.parametrize("net", ["cifar10", "ece408"])
def test_flop_and_bytes_add_up_to_the_layers_own(rung, net, no_compiler):
    network = tilewright.load(net)
    for layer in explain(rung, network.stages, HERE, 10):
        stage = layer.stage
        assert sum(kernel.cost.flops for kernel in layer.kernels) == 10 * stage.flops, (
            f"{stage.name}: the extents of a kernel's loops multiply to its multiply-adds"
        )
        for kernel in layer.kernels:
            assert kernel.seconds > 0
            assert kernel.cost.loads >= 0
        if len(layer.kernels) == 1:
            parameters = 4 * stage.parameter_count
            values = 10 * (stage.bytes - parameters)
            assert layer.kernels[0].cost.bytes == values + parameters


def test_a_thread_an_output_waits_for_its_loads(no_compiler):
    (kernel,) = facts("direct", "conv1").kernels
    assert kernel.grid == (64, 1, 100)
    assert kernel.loads_each == 2.0
    assert kernel.limit == "load units"
    products = 100 * 16 * 32 * 32 * 75
    assert kernel.multiply_adds == products
    assert kernel.seconds == pytest.approx(2 * products / (132 * 1.98e9 * 32))
    assert kernel.issued_bytes == 4 * (2 * products + 100 * 16 * 32 * 32)


def test_register_tiles_leave_arithmetic_as_the_limit(no_compiler):
    (kernel,) = facts("tuned", "conv2", images=10_000, net="ece408").kernels
    assert kernel.limit == "arithmetic"
    assert kernel.loads_each < 0.25


def test_small_layers_move_bytes_or_are_too_few_blocks(no_compiler):
    (relu,) = facts("direct", "relu1", images=1000).kernels
    assert relu.limit == "memory bandwidth"
    assert relu.seconds == pytest.approx(1000 * 2 * 4 * 16 * 32 * 32 / 4.8e12)
    (conv,) = facts("tuned", "conv1", images=1).kernels
    assert conv.limit == "too few blocks"
    assert math.prod(conv.grid) < 132


def test_blocks_that_are_not_full_load_as_if_they_were(no_compiler):
    one, many = (facts("direct", "fc", images=n).kernels[0] for n in (1, 64))
    assert one.cost.loads == many.cost.loads
    assert one.multiply_adds * 64 == many.multiply_adds


def test_filters_in_several_groups_share_the_bytes(no_compiler):
    at = replace(HERE, limits=replace(USUAL, constant_bytes=2400))
    layer = facts("constant", "conv1", at=at)
    assert len(layer.kernels) == 2
    whole = facts("constant", "conv1").kernels[0]
    assert sum(kernel.cost.flops for kernel in layer.kernels) == whole.cost.flops
    # The input is read by both, all the rest by one of them.
    twice = sum(kernel.cost.bytes for kernel in layer.kernels)
    assert twice - whole.cost.bytes == 100 * 4 * 3 * 32 * 32


def test_what_does_not_fit_says_so(no_compiler):
    at = replace(HERE, limits=replace(USUAL, constant_bytes=256, threads=128))
    assert (
        "does not fit: constant_conv needs 300 bytes" in facts("constant", "conv1", at=at).problem
    )
    problem = facts("fused-gemm", "conv1", at=at).problem
    assert "a block of 256 threads; the device has 128" in problem
    assert facts("direct", "conv1", at=at).problem is None  # its tiles get smaller


def test_layers_to_choose_from():
    network = tilewright.load("cifar10")
    assert [stage.name for stage in chosen(network, None)] == ["conv1", "conv2", "conv3"]
    with pytest.raises(TilewrightError, match="unknown layer 'conv9'; did you mean 'conv"):
        chosen(network, "conv9")
    plain = Network("plain", Pixels((1, 4, 4)), (AveragePool(2), Flatten()))
    assert [stage.name for stage in chosen(plain, None)] == ["input", "pool", "flatten"]
    direct = find("direct")
    pool = explain(direct, chosen(plain, "pool"), HERE, 3)[0].kernels[0]
    assert pool.cost.flops == 3 * plain.stages[1].flops > 0
    assert pool.loads_each is None
    assert "no kernel" in explain(direct, chosen(plain, "flatten"), HERE, 3)[0].problem


@pytest.mark.skipif(nvrtc.missing() is not None, reason=str(nvrtc.missing()))
def test_the_compilers_account():
    network = Network("one", Pixels((3, 9, 9)), (Convolution(5, 3),))
    (layer,) = explain(find("shared"), chosen(network, None), HERE, 1)
    (kernel,) = layer.kernels
    assert kernel.compiled.registers >= 16
    assert kernel.compiled.shared_bytes == 4 * kernel.work.source.shared_floats > 0
    assert 0 < kernel.occupancy.share <= 1


def test_targets(monkeypatch):
    monkeypatch.setattr(cuda, "find_spec", lambda name: None)
    assumed = target(None, find("direct"))
    assert "an NVIDIA H200 is assumed" in assumed.note
    with pytest.raises(TilewrightError, match="cannot run on cuda: CuPy not installed"):
        target(CUDA, find("direct"))
    gpu, limits = replace(REFERENCE, capability=80), Limits(1, 2, 3, 4, 5)
    monkeypatch.setattr(cuda, "missing", lambda device: None)
    monkeypatch.setattr(cuda, "limits", lambda index: limits)
    monkeypatch.setattr(cuda, "gpu", lambda index: gpu)
    assert target(None, find("direct")) == Target(limits, gpu)


def measured_layers():
    """Every convolution that was timed on an H200: rung, network, layer, images, seconds."""
    for net, results in json.loads(RESULTS.read_text())["networks"].items():
        batch = results["batch"]
        for row in results["rungs"]:
            if row["rung"] not in {rung.name for rung in RUNGS}:
                continue
            for layer, sample in row["operations"].items():
                seconds = sample["median_seconds"] * batch / results["images"]
                yield pytest.param(
                    row["rung"], net, layer, batch, seconds, id=f"{net}-{layer}-{row['rung']}"
                )


MEASURED = list(measured_layers())


@pytest.mark.parametrize(("rung", "net", "layer", "images", "seconds"), MEASURED)
def test_at_best_is_less_than_what_was_measured(rung, net, layer, images, seconds, no_compiler):
    """52.8 µs were said to be the best of what took `direct-reduce` 332."""
    found = facts(rung, layer, images, net)
    best = sum(kernel.seconds for kernel in found.kernels) * images / found.images
    assert best < seconds
    if rung in ("direct-reduce", "padded-reduce"):
        assert seconds < 2 * best
        assert found.kernels[-1].limit == "index arithmetic"


@pytest.mark.parametrize(("rung", "net", "layer", "images", "seconds"), MEASURED)
def test_a_profile_names_the_same_limit(rung, net, layer, images, seconds, no_compiler):
    found = facts(rung, layer, images, net)
    least = sum(kernel.seconds for kernel in found.kernels) * images / found.images
    rates = rates_of(REFERENCE)
    ceilings = Ceilings(
        "an H200", rates.flops, rates.bytes, rates.processors, "2026-11-15", "fp32", rates.loads,
        rates.index_operations,
    )  # fmt: skip
    for kernel in found.kernels:
        took = seconds * kernel.seconds / least
        tally = Tally()
        source = kernel.work.source
        tally(
            Event(
                "kernel",
                source.name,
                0,
                took,
                (layer,),
                grid=kernel.grid,
                block=source.block,
                cost=kernel.cost,
            )
        )
        (row,) = roofline(profile(rows=tally.rows({}), ceilings=ceilings))
        if row.limit != kernel.limit:  # then it is the one that is not reached
            assert row.limit == f"latency: {100 * kernel.seconds / took:.0f} % of {kernel.limit}"
            assert kernel.seconds < 0.25 * took


def test_idle_threads_take_their_turn(no_compiler):
    """Of 32 threads that reduce, 16 add in the first step and one in the last: five turns each."""
    (kernel,) = facts("direct-reduce", "conv1", images=1).kernels
    outputs, taps = 16 * 32 * 32, 75
    assert kernel.cost.loads == outputs * (2 * taps + 32 * (1 + 3 * 5))
