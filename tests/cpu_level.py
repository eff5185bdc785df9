"""`pytest --cpu sse`: all tests as on a CPU that has nothing beyond SSE2 (or AVX, or AVX2)."""

from __future__ import annotations

import pytest

from tilewright.fuse.cpu import build


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu",
        choices=["avx2", "avx", "sse"],
        help="as on a CPU of this level of vectors; what the command line starts anew is not held",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Before any test is collected: some are there only if the CPU has what they need."""
    level = config.getoption("--cpu")
    if level is not None:
        flags = build.restricted(level).features.split(",")
        features = {flag[1:]: flag.startswith("+") for flag in flags}
        build._features = lambda: features
