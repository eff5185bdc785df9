"""What all tests share: the thesis's data where it is at hand, and strategies for layers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.cpu_level import pytest_addoption, pytest_configure  # noqa: F401

# The thesis's weights and images are not the project's to ship: they lie beside the clone.
BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"

# Timings on a shared machine say nothing about correctness.
settings.register_profile("project", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")


def _beside(name: str) -> Path:
    path = BESIDE / name
    if not path.is_dir():
        pytest.skip(f"{name} is not beside the project (shared/data/{name})")
    return path


@pytest.fixture(scope="session")
def thesis_weights() -> Path:
    return _beside("convnetjs-cifar10")


@pytest.fixture(scope="session")
def thesis_images() -> Path:
    return _beside("cifar-10-batches-bin")


@pytest.fixture
def press_ctrl_c() -> Iterator[Callable[[], None]]:
    """As a user at a terminal does; a job in the background would ignore it."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: os.kill(os.getpid(), signal.SIGINT)
    signal.signal(signal.SIGINT, usual)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees, or leaves anything in, the user's fetched data."""
    home = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    return home
