"""Convolutions for hypothesis to draw: any that has an output."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tilewright.rungs.gpu.design import Geometry


@st.composite
def geometries(draw: Any) -> Geometry:
    channels, filters = draw(st.integers(1, 70)), draw(st.integers(1, 140))
    taps = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    stride = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    pad = draw(st.integers(0, 4)), draw(st.integers(0, 4))
    out = draw(st.integers(1, 70)), draw(st.integers(1, 70))
    size = tuple(
        max(1, (out[i] - 1) * stride[i] + taps[i] - 2 * pad[i]) for i in range(2)
    )  # the smallest image with such an output; one pixel may give more
    got = tuple((size[i] + 2 * pad[i] - taps[i]) // stride[i] + 1 for i in range(2))
    return Geometry(channels, *size, filters, *taps, *stride, *pad, *got)
