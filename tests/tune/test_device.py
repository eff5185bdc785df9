"""A tuner on a device, where none is needed: parts of networks, kernels compiled ahead."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from tests.own_kernels import DIRECT, kernel_file
from tests.rungs.gpu.kernels import USUAL
from tests.test_plan import NETWORK, needs_opencl
from tilewright.errors import TilewrightError
from tilewright.fuse.cuda.alternatives import alternatives
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.model import zoo
from tilewright.model.layers import Add, Concat, Convolution, Pixels, ReLU
from tilewright.model.network import Network
from tilewright.plan import uniform
from tilewright.precision import FP16
from tilewright.rungs import find
from tilewright.rungs.gpu.design import Geometry
from tilewright.rungs.own import load
from tilewright.rungs.rung import Rung, as_options
from tilewright.runtime.device import CPU, CUDA, OPENCL
from tilewright.runtime.dialect import Limits
from tilewright.truth.before_run import choosing
from tilewright.truth.trials import random_parameters
from tilewright.tune.device import OnDevice, part_of
from tilewright.tune.search import Candidate
from tilewright.tune.spans import Span, shared, spans, taking_part


@dataclass
class Compiler:
    """A runtime that compiles nothing, and remembers what it should have."""

    limits: Limits = USUAL
    capability: int = 90
    texts: list[tuple[str, str]] = field(default_factory=list)

    def compile_ahead(self, texts: Iterable[tuple[str, str]]) -> list[Future[object]]:
        self.texts += texts
        return []


def workshop(network: Network, rung: Rung) -> tuple[OnDevice, Compiler]:
    compiler = Compiler()
    opened = replace(rung, open_runtime=lambda device, memory: compiler)  # type: ignore[return-value,arg-type]
    pixels = np.zeros((4, *network.input.shape), np.uint8)
    device = CUDA if rung.devices == ("cuda",) else OPENCL
    return OnDevice(network, pixels, device, 2, {rung.name: opened}), compiler


@needs_opencl
def test_tiles_are_compiled_side_by_side() -> None:
    tuned = find("tuned")
    assert tuned.convolutions is not None
    stage = NETWORK.stages[1]
    tiles = list(tuned.convolutions.candidates(Geometry.of(stage), USUAL))[:3]
    candidates = tuple(Candidate.of("tuned", "fp32", tile) for tile in tiles)
    on, compiler = workshop(NETWORK, tuned)
    on.ahead(Span((stage,), candidates[:1], candidates), candidates)
    assert len({text for name, text in compiler.texts if name == "tuned_conv"}) == 3


def test_and_so_are_arrangements_of_the_whole_network() -> None:
    bare = zoo.network("ece408")
    network = bare.with_parameters(random_parameters(bare, np.random.default_rng(1)))
    some = list(alternatives(network.stages, ARITHMETICS["fp32"], 90))[:4]
    candidates = tuple(Candidate.of("network", "fp32", as_options(each)) for each in some)
    on, compiler = workshop(network, find("network"))
    on.ahead(Span(network.stages, candidates[:1], candidates), candidates)
    # Of those that do not wait for the batch, one each; two candidates have the same.
    assert len(set(compiler.texts)) >= len(candidates) - 1


@pytest.mark.parametrize("index", [0, 1, 2, 3, 5])
def test_a_part_has_the_layer_its_shapes_and_its_weights(index: int) -> None:
    stage = NETWORK.stages[index]
    part = part_of(NETWORK, Span((stage,), (), ()))
    made = next(each for each in part.stages if each.kind == stage.kind)
    assert (made.input_shape, made.layer) == (stage.input_shape, stage.layer)
    assert [x.tolist() for x in part.parameters.values()] == [
        NETWORK.parameters[name].tolist() for name in stage.parameter_shapes
    ]
    assert part_of(NETWORK, Span(NETWORK.stages, (), ())) is NETWORK


def test_a_part_takes_the_same_values_wherever_it_takes_some_from_outside() -> None:
    layers = (Convolution(4, 3, padding=1), ReLU(), Convolution(4, 3, padding=1), Add(), ReLU(),
              Concat())  # fmt: skip
    sources = ((0,), (1,), (2,), (3, 2), (4,), (5, 0))
    made = Network("branches", Pixels((3, 6, 5)), layers, sources=sources)
    made = made.with_parameters(random_parameters(made, np.random.default_rng(1)))
    add = part_of(made, Span(made.stages[4:5], (), ()))
    assert [stage.sources for stage in add.stages[1:]] == [(0, 0)]
    several = part_of(made, Span(made.stages[3:6], (), ()))
    assert [stage.sources for stage in several.stages[1:]] == [(0,), (1, 0), (2,)]
    with pytest.raises(TilewrightError, match="'concat' takes values of several shapes"):
        part_of(made, Span(made.stages[6:7], (), ()))


@needs_opencl
@pytest.mark.usefixtures("not_optimised")
def test_what_is_wrong_in_large_batches_alone_is_found_in_the_plan(tmp_path: Path) -> None:
    file = tmp_path / "late.cl"
    file.write_text(kernel_file(DIRECT, ("] = sum;", "] = image < 5 ? sum : 0.0f;"), name="late"))
    rung = load(file)
    on = OnDevice(NETWORK, np.zeros((8, 3, 9, 8), np.uint8), OPENCL, 8, {"late": rung})
    plan = uniform(NETWORK, rung, OPENCL, 8)
    stage, options = NETWORK.stages[1], plan.steps[1].options
    candidate = Candidate.of("late", "fp32", options)
    assert on.prove(Span((stage,), (candidate,), (candidate,)), candidate) is None
    found = on.prove_plan(plan)
    assert found is not None and found[0] == "conv1" and "random pixels" in found[1]


def test_a_proof_of_the_whole_network_is_of_the_candidate() -> None:
    """Trials have networks of their own, with the same layers."""
    asked = choosing(find("fused"), [(NETWORK.stages, {"own": 1})])
    again = Network("the network", NETWORK.input, NETWORK.layers)
    assert asked.plan(CPU, again.stages, asked.precision) == {"own": 1}
    shorter = Network("scores", NETWORK.input, NETWORK.layers[:-1])
    assert asked.plan(CPU, shorter.stages, asked.precision) != {"own": 1}


@needs_opencl
def test_what_computes_in_less_than_is_asked_for_is_left_out() -> None:
    half = replace(find("direct"), name="half", precision=FP16)
    both = [half, find("shared")]
    assert [rung.name for rung in taking_part(both, OPENCL, None)] == ["shared"]
    assert [rung.name for rung in taking_part(both, OPENCL, "fp16")] == ["half", "shared"]
    with pytest.raises(TilewrightError, match="half: computes in fp16, not in fp32"):
        taking_part([half], OPENCL, "fp32")


@needs_opencl
def test_all_rungs_offer_convolutions_and_one_of_them_the_rest() -> None:
    rungs = taking_part([find("direct"), find("shared"), find("tensor")], OPENCL, None)
    assert [rung.name for rung in rungs] == ["direct", "shared"]  # tensor cores are not fp32
    found = {span.name: span for span in spans(NETWORK, rungs, OPENCL)}
    assert list(found) == [stage.name for stage in NETWORK.stages]
    assert [each.rung for each in found["conv1"].own] == ["direct", "shared"]
    assert len(found["conv1"].candidates) > 4
    assert [each.rung for each in found["relu"].candidates] == ["direct"]
    assert shared(found["relu"].stages, OPENCL) and not shared(found["conv1"].stages, OPENCL)
