"""Sums without tensor cores: four filters that are left over are half of a column, and there may be
two sums of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tests.fuse.cuda import on_host
from tests.fuse.cuda.interpreter import Machine, run_program
from tests.fuse.cuda.memory import POISON
from tests.fuse.cuda.test_branches import images_of, ready, residual
from tests.fuse.cuda.test_schedule import problem
from tilewright.fuse.cuda import arrange, stack, sums
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.arrange import Arrangement, stack_as
from tilewright.fuse.cuda.generations import HOPPER
from tilewright.fuse.cuda.program import program
from tilewright.fuse.cuda.stack import Stack
from tilewright.fuse.cuda.steps import Convolve
from tilewright.fuse.cuda.sums import Shares
from tilewright.fuse.cuda.to_do import to_do
from tilewright.model.layers import Convolution, Layer, MaxPool, Pixels, ReLU
from tilewright.model.network import Network
from tilewright.truth.trials import random_parameters


def chain(filters: int) -> Network:
    first, second = Convolution(filters, 3, padding=1), Convolution(filters, 3)
    return Network("net", Pixels((3, 8, 8)), (first, ReLU(), MaxPool(2), second, ReLU()))


@pytest.fixture(autouse=True)
def whole_tiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Units have all filters of their tiles, though small pictures have few of such."""
    monkeypatch.setattr(Shares, "busiest", lambda self, warps, groups: self.units * self.splits**9)
    _forget()
    yield
    _forget()


def _forget() -> None:
    """What other tests planned before, and what these do."""
    for module in (arrange, stack, sums):
        for each in vars(module).values():
            if hasattr(each, "cache_clear"):
                each.cache_clear()


def planned(network: Network, precision: str = "fp32") -> Stack:
    chosen = Arrangement(0, warps=4, groups=2, weight=0.1)
    plan = stack_as(chosen, ARITHMETICS[precision], to_do(network.stages, HOPPER), HOPPER)
    assert plan
    return plan


@pytest.mark.parametrize(
    "network", [*map(chain, (3, 12, 20)), residual(12, 6, 6)], ids=["3", "12", "20", "added"]
)
def test_four_filters_left_over(network: Network) -> None:
    network = ready(network)
    plan = planned(network)
    assert all(phase.shares and phase.shares.narrow for phase in plan.phases)
    assert problem(network, images_of(network), "fp32", [plan]) is None


def test_they_lie_in_other_places() -> None:
    """Who takes a narrow column for an ordinary one, or the other way, gets other sums."""
    network = ready(chain(12))
    plan, images = planned(network), images_of(network)
    made = program(plan, network.input, "uint8")
    item = tuple(replace(x, narrow=False) if isinstance(x, Convolve) else x for x in made.item)
    right, wrong = (
        run_program(each, plan, network, images) for each in (made, replace(made, item=item))
    )
    assert not np.array_equal(right, wrong)


@pytest.mark.parametrize(
    ("precision", "filters", "columns", "narrow"),
    [("fp32", 20, 3, True), ("fp32", 20, 1, False), ("fp32", 21, 3, False),
     ("fp32", 24, 3, False), ("fp16", 20, 3, False)],
)  # fmt: skip
def test_which_columns_are_narrow(precision: str, filters: int, columns: int, narrow: bool) -> None:
    phase = planned(chain(filters), precision).phases[0]
    shares = Shares(phase.operation.geometry, ARITHMETICS[precision], 2, columns)
    assert shares.narrow == narrow
    assert shares.full_columns == columns - 0.5 * narrow


class Beside(Machine):
    """A group whose sums the kernel's own text computes, too, on a copy of its memory."""

    def convolve(self, step: Convolve) -> None:
        shared, out = self.shared.words.copy(), self.out.words.copy()
        super().convolve(step)
        on_host.convolve(self.made, step, shared, self.own, self.parameters, self.tables, out)
        for found, right in ((shared, self.shared.words), (out, self.out.words)):
            same = found == right
            close = np.isclose(found.view(np.float32), right.view(np.float32), 1e-4, 1e-4)
            assert (same | close).all(), np.flatnonzero(~(same | close))[:8]


@pytest.mark.skipif(on_host.missing() is not None, reason=str(on_host.missing()))
@pytest.mark.parametrize("twice", [True, False])
@pytest.mark.parametrize(
    "layers",
    [
        # Narrow columns, pooled; then windows that lie apart, and a column of filters alone.
        (Convolution(20, 5, padding=2), ReLU(), MaxPool(2), Convolution(12, 5, stride=2)),
        (Convolution(7, (5, 3)), Convolution(16, (3, 1), padding=1), ReLU(), Convolution(9, 3)),
    ],
)
def test_lanes_without_tensor_cores_add_up_what_they_should(
    layers: tuple[Layer, ...], twice: bool
) -> None:
    bare = Network("net", Pixels((3, 18, 20)), layers)
    network = bare.with_parameters(random_parameters(bare, np.random.default_rng(0)))
    images = np.random.default_rng(1).normal(size=(1, 3, 18, 20)).astype(np.float32)
    gpu = replace(HOPPER, plain=replace(HOPPER.plain, twice=1e-3 if twice else 1e6))
    plan, _ = arrange.arranged(ARITHMETICS["fp32"], to_do(network.stages, gpu), gpu)
    assert any(each.shares and each.shares.twice for each in plan.sums) == twice
    made = program(plan, network.input, "float32")
    machine = Beside(made, plan.parameters(network.parameters), plan.tables[0])
    machine.run(images, POISON)
