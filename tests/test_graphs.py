"""Graphs from the plan to the answer: what each step takes, where it is kept, and every rung."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.strategies import graphs
from tilewright.errors import TilewrightError
from tilewright.execute import Program, program_of
from tilewright.memory import DEVICE_PLANS
from tilewright.model.network import Network
from tilewright.plan import check, placed, uniform
from tilewright.plan_file import read, write
from tilewright.rungs import find
from tilewright.runtime import opencl
from tilewright.runtime.device import CPU, OPENCL
from tilewright.truth import reference
from tilewright.truth.odd import GRAPHS
from tilewright.truth.trials import random_parameters

NO_OPENCL = opencl.missing(OPENCL)
needs_opencl = pytest.mark.skipif(NO_OPENCL is not None, reason=str(NO_OPENCL))


def weighted(network: Network, seed: int = 1) -> Network:
    return network.with_parameters(random_parameters(network, np.random.default_rng(seed)))


def pixels(network: Network, count: int) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, (count, *network.input.shape), np.uint8)


@given(graphs())
def test_no_buffer_is_written_to_while_somebody_needs_it(network):
    """Whoever reads a buffer finds what the layer that he takes wrote there."""
    steps = uniform(network, find("im2col"), CPU, 3).steps
    content: dict[int, str] = {}
    for step, stage in zip(steps, network.stages, strict=True):
        names = [network.stages[source].name for source in stage.sources]
        assert list(step.takes) == names
        held = {name: number for number, name in content.items()}
        assert all(name in held for name in names)
        if stage.layer.computes:
            assert step.buffer not in [held[name] for name in names]
        else:
            assert step.buffer == held[names[0]]
            # Both names are of the same memory: whoever takes the first later finds it, too.
        content[step.buffer] = step.layers[-1]
    assert content[steps[-1].buffer] == network.stages[-1].name


def test_buffers_are_used_again():
    chain = Network("long", GRAPHS[0].input, GRAPHS[0].layers[:3] * 5)
    assert {step.buffer for step in uniform(chain, find("serial"), CPU, 1).steps} == {0, 1}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"buffer": 7}, "takes conv2, relu1 into buffer 7; it must take conv2, relu1 into buffer"),
        ({"takes": ("conv2", "conv1")}, "it must take conv2, relu1 into buffer"),
    ],
)
def test_a_plan_that_reads_elsewhere_is_refused(fields, words):
    network, rung = GRAPHS[0], find("im2col")
    plan = uniform(network, rung, CPU, 1)
    steps = tuple(
        replace(step, **fields) if step.layers == ("add",) else step for step in plan.steps
    )
    with pytest.raises(TilewrightError, match=words):
        check(replace(plan, steps=steps), network, {rung.name: rung})


def test_a_step_whose_inside_is_read_outside_is_refused():
    network = GRAPHS[0]
    rung = replace(
        find("im2col"), cut=lambda net: [net.stages[:1], net.stages[1:4], *zip(net.stages[4:])]
    )
    plan = uniform(network, find("im2col"), CPU, 1)
    first, *rest = plan.steps
    joint = replace(rest[0], layers=("conv1", "relu1", "conv2"))
    steps = placed(network, [first, joint, *rest[3:]])
    with pytest.raises(TilewrightError, match="relu1: taken outside of the step that makes it"):
        check(replace(plan, steps=steps), network, {"im2col": rung})


def test_a_plan_in_a_file_has_what_steps_take(tmp_path):
    network = weighted(GRAPHS[3])
    plan = uniform(network, find("im2col"), CPU, 2)
    write(tmp_path / "plan.json", plan, network)
    assert read(tmp_path / "plan.json", network) == plan


def agree(program: Program, images: np.ndarray) -> None:
    network = program.network
    *_, truth = reference.chain(network.stages, network.parameters, images)
    off = np.abs(program(images) - truth.value)
    assert (off <= truth.bound).all()


@given(graphs(), st.integers(0, 9))
@examples(25)
def test_any_graph_in_numpy(network, seed):
    agree(program_of(weighted(network, seed), find("im2col"), CPU, 2), pixels(network, 3))


@pytest.mark.parametrize("rung", ["serial", "threads", "fused", "onnxruntime", "torch"])
@pytest.mark.parametrize("network", GRAPHS, ids=lambda network: network.name)
def test_graphs_on_the_cpu(rung, network):
    if missing := find(rung).missing(CPU):
        pytest.skip(missing)
    agree(program_of(weighted(network), find(rung), CPU, 2), pixels(network, 3))


@needs_opencl
@pytest.mark.usefixtures("not_optimised")
@pytest.mark.parametrize("memory", DEVICE_PLANS)
def test_graphs_in_every_memory_plan(memory):
    network = weighted(GRAPHS[3])
    agree(program_of(network, find("direct"), OPENCL, 2, memory), pixels(network, 3))
