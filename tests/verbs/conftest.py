"""A small network with its weights, and images for it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import tilewright
from tilewright.profiling import ceilings
from tilewright.profiling.result import Ceilings

DESCRIPTION = {
    "name": "<b>small</b>",
    "input": {"shape": [1, 9, 7]},
    "layers": [
        {"type": "convolution", "filters": 3, "kernel": 3},
        {"type": "relu"},
        {"type": "max_pool", "size": 2},
        {"type": "fully_connected", "outputs": 4},
        {"type": "softmax"},
    ],
}


@pytest.fixture(scope="session")
def small() -> tilewright.Network:
    network, generator = tilewright.load(DESCRIPTION), np.random.default_rng(3)
    return tilewright.load(
        DESCRIPTION,
        {name: generator.normal(size=shape) for name, shape in network.parameter_shapes.items()},
    )


@pytest.fixture(scope="session")
def pixels() -> NDArray[np.uint8]:
    return np.random.default_rng(4).integers(0, 256, (6, 1, 9, 7), np.uint8)


@pytest.fixture(autouse=True)
def no_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ceilings are not what is tried here."""
    known = Ceilings("some CPU", 1e15, 1e15, 2, "2026-11-15")
    monkeypatch.setattr(ceilings, "measure", lambda *_: ceilings.Known(known, ""))


@pytest.fixture(autouse=True)
def _little_is_computed(not_optimised: None) -> None:
    """By the network of these tests."""
