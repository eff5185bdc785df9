"""All kernels of a program are begun before the first is waited for."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tilewright.errors import TilewrightError
from tilewright.execute import Program
from tilewright.fuse.cuda.stack import Stack
from tilewright.model import zoo
from tilewright.plan import uniform
from tilewright.rungs import find
from tilewright.runtime import GpuKernel, cuda
from tilewright.runtime.device import CUDA
from tilewright.runtime.dialect import DoesNotFit, Limits
from tilewright.runtime.gather import Gathering, compile_together
from tilewright.runtime.multiprocessor import REFERENCE
from tilewright.truth.trials import random_parameters

LIMITS = Limits(1024, 49152, 65536, 2**34, 100)


@pytest.fixture(autouse=True)
def given_gpu(monkeypatch):
    """Plans are made for a GPU that is not here."""
    monkeypatch.setattr(cuda, "device_limits", lambda device: LIMITS)
    monkeypatch.setattr(cuda, "gpu", lambda index: REFERENCE)


class Compiling(Gathering):
    """Notes what is begun, and what is then asked for."""

    def __init__(self, reads=False):
        super().__init__(LIMITS, 90, reads=reads)
        self.begun = None

    def compile_ahead(self, texts):
        assert self.begun is None and not self.texts
        self.begun = dict(texts)
        futures = [Future() for _ in self.begun]
        for future in futures:
            future.set_exception(TilewrightError("said when it is asked for"))
        return futures


@pytest.mark.parametrize(
    "name, precision",
    [("direct", None), ("constant", None), ("tensor", "fp16"), ("network", "fp32")],
)
def test_all_that_a_program_needs_and_nothing_else(name, precision):
    network = zoo.network("ece408")
    network = network.with_parameters(random_parameters(network, np.random.default_rng(0)))
    runtime = Compiling()
    rung = replace(find(name).at(precision), open_runtime=lambda device, memory: runtime)
    told = []
    Program(
        network, uniform(network, rung, CUDA, 10), {rung.name: rung},
        building=lambda done, of: told.append((done, of)),
    )  # fmt: skip
    assert runtime.begun == runtime.texts
    assert told == [(done, len(told)) for done in range(1, len(runtime.begun) + 1)]
    assert len(runtime.begun) > 1


def test_weights_are_packed_once(monkeypatch):
    """Not for the stand-in, which has no use for them."""
    packed = []
    real = Stack.parameters
    monkeypatch.setattr(Stack, "parameters", lambda plan, given: (
        packed.append(plan.names), real(plan, given))[1])  # fmt: skip
    network = zoo.network("cifar10")
    network = network.with_parameters(random_parameters(network, np.random.default_rng(0)))
    for reads in (True, False):
        runtime = Compiling(reads)
        rung = replace(
            find("network").at("fp16"), open_runtime=lambda device, memory, it=runtime: it
        )
        Program(network, uniform(network, rung, CUDA, 1000), {rung.name: rung})
        assert len(packed) == len(set(packed)) == (2 if reads else 0)
        packed.clear()


def test_what_fits_is_begun_and_the_rest_is_left():
    runtime = Compiling()

    def prepare(gathering):
        gathering.compile_text("first", "text", 32, 0)
        raise DoesNotFit("the second")

    compile_together(runtime, prepare)
    assert list(runtime.begun) == [("first", "text")]


def test_another_runtime_is_left_alone():
    def prepare(gathering):
        raise AssertionError

    compile_together(SimpleNamespace(limits=None, compile=GpuKernel), prepare)
