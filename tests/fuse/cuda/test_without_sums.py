"""Layers that are no sums: a kernel's own text, thread by thread, beside the interpreter."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.fuse.cuda import interpreter, on_host
from tests.fuse.cuda.interpreter import Machine, interpret
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.cut import cut
from tilewright.fuse.cuda.emit_stack import stack_text
from tilewright.fuse.cuda.stack import Stack
from tilewright.fuse.cuda.steps import Channels, Each, Join, Windows
from tilewright.model.layers import (
    Add,
    AveragePool,
    Concat,
    Convolution,
    MaxPool,
    Multiply,
    Pixels,
    ReLU,
    Sigmoid,
    Tanh,
)
from tilewright.model.network import Network
from tilewright.truth.odd import GRAPHS
from tilewright.truth.trials import random_parameters

pytestmark = pytest.mark.skipif(on_host.missing() is not None, reason=str(on_host.missing()))


class Beside(Machine):
    """A group whose layers without sums the kernel's own text computes, too, on a copy of its
    memory."""

    met: set[type]

    def step(self, step, name) -> None:
        if not isinstance(step, Channels | Each | Join | Windows):
            super().step(step, name)
            return
        shared, out = self.shared.words.copy(), self.out.words.copy()
        super().step(step, name)
        given = [self.images[self.item], *(each[self.item] for each in self.others)]
        where = (self.own, self.parameters, given, self.start, self.turn, out[self.offset :])
        on_host.without_sums(self.made, step, shared, *where)
        for found, right in ((shared, self.shared.words), (out, self.out.words)):
            kind = np.float16 if step.target.to == "TW_TO_HALVES" else np.float32
            one, other = found.view(kind), right.view(kind)
            close = np.isclose(one, other, 2e-3, 1e-4, equal_nan=True)
            assert close.all(), (name, one[~close][:8], other[~close][:8])
        self.met.add(type(step))


def channels(multiplier: int, stride: int) -> Network:
    """Filters that see one channel, and windows that stick out, before a join of odd numbers."""
    layers = (
        Convolution(6, 3, padding=1), Sigmoid(),
        Convolution(6 * multiplier, 3, stride=stride, padding=1, groups=6), ReLU(),
        MaxPool(3, stride=2, padding=1), Tanh(), AveragePool(2, stride=1, padding=1),
        Convolution(5, 1), Concat(), Convolution(3, 1),
    )  # fmt: skip
    sources = ((0,), (1,), (2,), (3,), (4,), (5,), (6,), (7,), (8, 7), (9,))
    return Network("channels", Pixels((3, 15, 14)), layers, sources=sources)


def even() -> Network:
    """Pictures of even numbers of channels: added, multiplied, and behind each other."""
    layers = (
        Convolution(6, 3), ReLU(), Convolution(6, 3, padding=1), Add(), Sigmoid(),
        AveragePool((9, 8)), Convolution(6, 1), Multiply(), Concat(), Convolution(4, 1),
    )  # fmt: skip
    sources = ((0,), (1,), (2,), (3, 2), (4,), (5,), (6,), (5, 7), (8, 3), (9,))
    return Network("even", Pixels((3, 11, 10)), layers, sources=sources)


NETWORKS = (*GRAPHS, channels(1, 1), channels(2, 2), even())


@pytest.mark.parametrize("precision", ["fp16", "tf32", "fp32"])
def test_threads_write_what_the_interpreter_says(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Beside, "met", set(), raising=False)
    monkeypatch.setattr(interpreter, "Machine", Beside)
    for bare in NETWORKS:
        network = bare.with_parameters(random_parameters(bare, np.random.default_rng(0)))
        images = np.random.default_rng(1).normal(size=(1, *network.input.shape))
        kernels = cut(network.stages, ARITHMETICS[precision], 90)
        interpret(kernels, network, images.astype(np.float32))
    assert Beside.met == {Channels, Each, Join, Windows}


def test_two_channels_are_read_at_once_where_they_lie_so() -> None:
    def ways(network: Network) -> set[str]:
        (plan,) = cut(network.stages, ARITHMETICS["fp16"], 90)
        assert isinstance(plan, Stack)
        return set(re.findall(r"(one|two)<Layer\d+Part", stack_text(plan, "net", None, "float32")))

    assert ways(even()) == {"two"}
    assert ways(channels(1, 1)) == {"one"}
