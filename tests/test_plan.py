"""Plans: all choices are in them, and what a plan says is what is built."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tilewright.errors import TilewrightError
from tilewright.execute import Program, program_of
from tilewright.model.layers import Convolution, Flatten, FullyConnected, Pixels, ReLU
from tilewright.model.network import Network
from tilewright.plan import Plan, Step, check, uniform
from tilewright.rungs import choose, find, resolve, rungs, together
from tilewright.runtime import opencl
from tilewright.runtime.device import CPU, OPENCL
from tilewright.truth.trials import random_parameters

BARE = Network(
    "small",
    Pixels((3, 9, 8)),
    (Convolution(5, 3, padding=1), ReLU(), Convolution(4, 3), Flatten(), FullyConnected(6)),
)
NETWORK = BARE.with_parameters(random_parameters(BARE, np.random.default_rng(1)))
PIXELS = np.random.default_rng(2).integers(0, 256, (3, 3, 9, 8), np.uint8)
NO_OPENCL = opencl.missing(OPENCL)
needs_opencl = pytest.mark.skipif(NO_OPENCL is not None, reason=str(NO_OPENCL))
pytestmark = pytest.mark.usefixtures("not_optimised")


def changed(plan: Plan, layer: str, **fields: object) -> Plan:
    """A plan with the step of one layer changed."""
    steps = (replace(x, **fields) if layer in x.layers else x for x in plan.steps)
    return replace(plan, steps=tuple(steps))


def mixed() -> Plan:
    """conv1 by direct with small blocks, conv2 by tuned, everything else by direct."""
    plan = uniform(NETWORK, find("direct"), OPENCL, 2)
    other = uniform(NETWORK, find("tuned"), OPENCL, 2)
    (conv2,) = (step for step in other.steps if step.layers == ("conv2",))
    plan = replace(plan, steps=tuple(conv2 if x.layers == ("conv2",) else x for x in plan.steps))
    return changed(plan, "conv1", options={"columns": 4, "rows": 4})


def test_a_uniform_plan_has_a_step_a_layer_and_the_rungs_precision() -> None:
    plan = uniform(NETWORK, find("im2col"), CPU, 7)
    assert [step.layers for step in plan.steps] == [(stage.name,) for stage in NETWORK.stages]
    assert {(step.rung, step.precision) for step in plan.steps} == {("im2col", "fp32")}
    assert (plan.memory, plan.batch, plan.precision) == ("host", 7, "fp32")


@needs_opencl
def test_choices_are_in_the_plan_and_built_from_it() -> None:
    rung = find("shared")
    plan = uniform(NETWORK, rung, OPENCL, 2)
    options = {step.layers[0]: step.options for step in plan.steps}
    assert options["conv1"] == {"columns": 8, "rows": 16}
    assert options["relu"] == options["flatten"] == options["fc"] == {}
    small = changed(plan, "conv1", options={"columns": 4, "rows": 4})
    built = {
        name: Program(NETWORK, each, {"shared": rung}).steps[1].launch.kernels[0][1].block
        for name, each in (("own", plan), ("small", small))
    }
    assert built == {"own": (8, 16, 1), "small": (4, 4, 1)}


@needs_opencl
def test_layers_by_different_rungs_compute_the_same() -> None:
    plan = mixed()
    found = resolve(plan)
    assert set(found) == {"direct", "tuned"}
    assert together(plan, found).label == "direct + tuned"
    program = Program(NETWORK, plan, found)
    kernels = [step.launch.kernels[0][1].name for step in program.steps if step.launch]
    assert kernels[1] == "direct_conv" and kernels[3] == "tuned_conv"
    expected = program_of(NETWORK, find("im2col"), CPU, 3)(PIXELS)
    np.testing.assert_allclose(program(PIXELS), expected, rtol=1e-5, atol=1e-5)


@needs_opencl
@pytest.mark.parametrize("rung", [rung.name for rung in rungs(OPENCL)])
def test_options_that_nobody_offers_are_refused(rung: str) -> None:
    """Whatever a file says, no kernel is made of it."""
    plan = uniform(NETWORK, find(rung), OPENCL, 2)
    (own,) = (dict(step.options) for step in plan.steps if step.layers == ("conv1",))
    first = next(iter(own))
    for options in ({}, {**own, "more": 1}, {**own, first: 3001}, {**own, first: -1}):
        with pytest.raises(
            TilewrightError, match=r"^conv1: options .* the rung offers .*/"
        ) as error:
            Program(NETWORK, changed(plan, "conv1", options=options), resolve(plan))
        assert all(f"{name} of " in str(error.value) for name in own)
    for value in ("16", 1.5, True, None, [16]):
        wrong = changed(plan, "conv1", options={**own, first: value})
        with pytest.raises(TilewrightError, match=r"^conv1: options: .*Expected `int`"):
            Program(NETWORK, wrong, resolve(plan))
    with pytest.raises(TilewrightError, match=r"^relu: options"):
        Program(NETWORK, changed(plan, "relu", options=own), resolve(plan))


def test_what_is_no_plan_of_the_network_or_its_rungs_is_refused() -> None:
    plan = uniform(NETWORK, find("im2col"), CPU, 2)
    found = {name: find(name) for name in ("im2col", "fused", "direct", "onnxruntime")}
    first, *rest = plan.steps
    cases = {
        "is for the layers conv1,": replace(plan, steps=tuple(rest)),
        "takes no such layers": replace(
            plan, steps=(first, Step(("conv1", "relu"), "im2col", "fp32", {}), *rest[2:])
        ),
        "'fused' takes no such layers": changed(plan, "conv1", rung="fused"),
        "does not run on cpu": changed(plan, "conv1", rung="direct"),
        "knows no memory 'streamed'": replace(plan, memory="streamed"),
        "has no options": changed(plan, "conv1", options={"tile": 3}),
        "cannot run with --precision fp16": changed(plan, "conv1", precision="fp16"),
    }
    for words, wrong in cases.items():
        with pytest.raises(TilewrightError, match=words):
            check(wrong, NETWORK, found)
    check(plan, NETWORK, found)


def test_a_plan_runs_on_one_runtime() -> None:
    plan = uniform(NETWORK, find("im2col"), CPU, 2)
    other = replace(find("im2col"), name="elsewhere", open_runtime=lambda device, memory: None)
    wrong = changed(plan, "relu", rung="elsewhere")
    with pytest.raises(TilewrightError, match="im2col, elsewhere have runtimes of their own"):
        check(wrong, NETWORK, {"im2col": find("im2col"), "elsewhere": other})


def test_given_options_take_the_place_of_the_rungs() -> None:
    rung = choose(CPU, "fused")
    own = uniform(NETWORK, rung, CPU, 2).steps[0].options
    few = uniform(NETWORK, rung, CPU, 2, options={"images": "few"}).steps[0].options
    assert own["images"] == "both"
    assert few == {**own, "images": "few"}
