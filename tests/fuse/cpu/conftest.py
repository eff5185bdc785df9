"""What the tests of the fused CPU kernel share."""

from __future__ import annotations

import pytest

from tilewright.fuse.cpu import build


@pytest.fixture
def quick_elsewhere(level: str, request: pytest.FixtureRequest) -> None:
    """Code for this CPU's own vectors is made as a user's is; for others it is only to be seen
    that what was generated for their width is right, which LLVM shows in a quarter of the time."""
    if level != build.host().level:
        request.getfixturevalue("not_optimised")
