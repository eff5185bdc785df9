"""The parts of a network put together: against all combinations, tried one by one."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import TilewrightError
from tilewright.tune.cover import Part, cover

PARTS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(1, 3), st.integers(1, 20)), min_size=1, max_size=9
)


@given(PARTS)
def test_no_combination_is_faster(drawn: list[tuple[int, int, int]]) -> None:
    parts = [Part(a, a + n, float(t), i) for i, (a, n, t) in enumerate(drawn) if a + n <= 5]
    whole = [
        chain
        for count in range(1, 6)
        for chain in itertools.permutations(parts, count)
        if chain[0].first == 0 and chain[-1].end == 5
        and all(a.end == b.first for a, b in itertools.pairwise(chain))
    ]  # fmt: skip
    if not whole:
        with pytest.raises(TilewrightError, match="no rung computes layer"):
            cover(5, parts)
        return
    chosen = cover(5, parts)
    assert tuple(chosen) in whole
    least = min(sum(part.seconds for part in chain) for chain in whole)
    assert sum(part.seconds for part in chosen) == least
