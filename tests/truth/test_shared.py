"""Kernels that several proofs need, on a runtime that only notes what it should compile."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

import pytest

from tilewright.model.layers import Convolution, FullyConnected, MaxPool, Pixels, ReLU
from tilewright.model.network import Network
from tilewright.rungs import find
from tilewright.runtime import cuda
from tilewright.runtime.device import CUDA
from tilewright.runtime.dialect import Limits
from tilewright.runtime.multiprocessor import REFERENCE
from tilewright.truth import odd, shared

LIMITS = Limits(1024, 49152, 65536, 2**34, 100)
NETWORK = Network(
    "small", Pixels((2, 6, 6)), (Convolution(3, 3), ReLU(), MaxPool(2), FullyConnected(4))
)


class Noted:
    limits, capability = LIMITS, 90

    def __init__(self):
        self.begun, self.filled = [], set()

    def upload(self, array):
        self.filled.add(array.dtype.name)
        return array.copy()

    def synchronise(self):
        pass

    def compile_ahead(self, texts):
        self.begun += texts
        done = Future()
        done.set_result(None)
        return [done]


@pytest.fixture(autouse=True)
def few_trials_of_a_gpu_that_is_not_here(monkeypatch):
    monkeypatch.setattr(cuda, "device_limits", lambda device: LIMITS)
    monkeypatch.setattr(cuda, "gpu", lambda index: REFERENCE)
    for name in ("SEQUENCES", "GRAPHS"):
        monkeypatch.setattr(odd, name, ())
    drawn = [((3, 5, 4), Convolution(4, 3)), ((3, 5, 4), MaxPool(2))]
    monkeypatch.setattr(odd, "single", lambda generator: drawn)
    monkeypatch.setattr(odd, "joins", lambda kind: [])


def compiled(*names):
    runtime = Noted()
    able = [replace(find(name), open_runtime=lambda device, memory: runtime) for name in names]
    shared.compile_shared(able, CUDA, NETWORK, 5, seed=3)
    # The device's library has met every type of buffers that is copied there.
    assert runtime.filled == ({"float32", "uint8", "uint32"} if runtime.begun else set())
    return runtime.begun


def test_what_rungs_have_in_common_is_compiled_and_nothing_else():
    begun = compiled("network", "direct", "tuned", "torch")
    names = {name for name, _ in begun}
    assert {"layer_pool", "layer_relu", "layer_fc", "layer_normalise"} <= names
    assert not any("conv" in name for name in names)  # each has its own
    assert len(set(begun)) == len(begun)
    # Whichever two are looked at have the same in common: trials are of one seed.
    assert set(begun) == set(compiled("shared", "unroll-gemm"))


def test_one_rung_shares_nothing():
    assert compiled("direct", "network") == []
