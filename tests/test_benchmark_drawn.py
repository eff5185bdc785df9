"""Networks of dice: the same for the same number, and all of them run."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from benchmarks import drawn, plans
from benchmarks.builds import every_network

from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.branches import is_chain
from tilewright.fuse.cuda.cut import choose
from tilewright.truth import reference
from tilewright.truth.trials import random_parameters


def test_a_number_is_a_network() -> None:
    """In another process, too, whose hashes are others."""
    code = "from benchmarks.drawn import *; print(in_words(drawn(17)))"
    said = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    assert said.stdout.decode().rstrip() == drawn.in_words(drawn.drawn(17))
    assert every_network()["drawn-17"].layers == drawn.drawn(17).layers


def test_they_are_of_many_kinds_and_no_two_the_same() -> None:
    every = drawn.every_drawn()
    assert len({each.layers for each in every}) == len(every) == drawn.COUNT
    assert all(drawn.LEAST <= each.flops <= drawn.MOST for each in every)
    words = [drawn.in_words(each) for each in every]
    for part in ("Add", " each", "AveragePool", "SiLU", "/2", "fc 800"):
        assert 3 < sum(part in each for each in words) < drawn.COUNT, part


@pytest.mark.parametrize("number", range(0, 100, 9))
def test_they_run(number: int) -> None:
    bare = drawn.drawn(number)
    network = bare.with_parameters(random_parameters(bare, np.random.default_rng(0)))
    images = np.random.default_rng(1).integers(0, 256, (1, *network.input.shape), np.uint8)
    found = reference.chain(network.stages, network.parameters, images)[-1].value
    assert np.isfinite(found).all() and found.sum() == pytest.approx(1)


@pytest.mark.parametrize("name, precision", [("cifar64", "fp32"), ("resnet20", "tf32")])
def test_kernels_that_are_timed_are_those_that_are_chosen(name: str, precision: str) -> None:
    """Of branches those alone that take one picture."""
    network = every_network()[name]
    parts = list(plans.as_cut(network, precision))
    assert parts and all(is_chain(each.todo) for each in parts)
    chosen = choose(network.stages, ARITHMETICS[precision], plans.CAPABILITY).kernels
    begins = np.cumsum([0, *(kernel.operations for kernel in chosen)]).tolist()
    for part in parts:
        assert chosen[begins.index(part.first)].operations == len(part.todo)
        tried = plans.plans_of(ARITHMETICS[precision], part, 3)
        assert 0 < len(tried) <= 3
        assert all(len(plan.phases) == len(part.todo) for plan in tried)
