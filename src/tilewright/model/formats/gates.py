"""Activations that files write as a value times a gate that is computed of it.

Exporters write SiLU, hard-swish, Mish and GELU in pieces. What is not recognised is a product like
any other, unless it needs an error function or a softplus, which no network here has alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.model.formats.parts import CLOSE, Affine, Erf, Part, Softplus
from tilewright.model.layers import (
    GELU,
    Add,
    HardSigmoid,
    HardSwish,
    Layer,
    Mish,
    Multiply,
    ReLU6,
    Sigmoid,
    SiLU,
    Tanh,
    TanhGELU,
)
from tilewright.model.layers.gelu import CUBE, HALF, SLOPE

Parts = Sequence[Part]
# An activation, the part it is of, and how many times it.
Found = tuple[Layer, int, float]


def gated(parts: Parts, gate: int, x: int) -> Found | None:
    """What a part times another one is, if that is a gate computed of it."""
    part = parts[gate]
    if isinstance(part.layer, Sigmoid) and part.sources == (x,):
        return SiLU(), x, 1.0
    if (factor := _hard(parts, gate, x)) is not None:
        return HardSwish(), x, factor
    if isinstance(part.layer, Tanh) and _is_softplus(parts, part.sources[0], x):
        return Mish(), x, 1.0
    core, scale, shift = _line(parts, gate)
    if not scale or not _close(shift / scale, 1.0):
        return None
    # The value may have been halved before.
    below, times, added = _line(parts, x, most=1)
    for at, factor in ((x, 1.0), *([(below, times)] if not added else [])):
        if _is_erf(parts, core, at):
            return GELU(), at, 2 * scale * factor
        if _is_tanh(parts, core, at):
            return TanhGELU(), at, 2 * scale * factor
    return None


def _hard(parts: Parts, gate: int, x: int) -> float | None:
    """How many times a part is the hard sigmoid of another, if it is."""
    core, factor, shift = _line(parts, gate)
    part = parts[core]
    if shift:
        return None
    if isinstance(part.layer, HardSigmoid):
        return factor if part.layer == HardSigmoid() and part.sources == (x,) else None
    if isinstance(part.layer, ReLU6) and _line(parts, part.sources[0], most=1) == (x, 1.0, 3.0):
        return 6 * factor
    return None


def _is_softplus(parts: Parts, at: int, x: int) -> bool:
    return isinstance(parts[at].layer, Softplus) and parts[at].sources == (x,)


def _is_erf(parts: Parts, at: int, x: int) -> bool:
    """Whether a part is erf(x / sqrt(2))."""
    part = parts[at]
    return isinstance(part.layer, Erf) and _times(parts, part.sources[0], x, HALF)


def _is_tanh(parts: Parts, at: int, x: int) -> bool:
    """Whether a part is tanh(sqrt(2 / pi) (x + 0.044715 x^3))."""
    if not isinstance(parts[at].layer, Tanh):
        return False
    core, scale, shift = _line(parts, parts[at].sources[0])
    total = parts[core]
    if shift or not _close(scale, SLOPE) or not isinstance(total.layer, Add):
        return False
    if len(total.sources) != 2 or x not in total.sources:
        return False
    other = total.sources[1 - total.sources.index(x)]
    cube, factor, added = _line(parts, other)
    return not added and _close(factor, CUBE) and _is_cube(parts, cube, x)


def _is_cube(parts: Parts, at: int, x: int) -> bool:
    part = parts[at]
    if not isinstance(part.layer, Multiply) or x not in part.sources:
        return False
    square = parts[part.sources[1 - part.sources.index(x)]]
    return isinstance(square.layer, Multiply) and square.sources == (x, x)


def _times(parts: Parts, at: int, x: int, wanted: float) -> bool:
    """Whether a part is so many times another, by one constant or several."""
    factor = 1.0
    while at != x:
        affine = parts[at].layer
        if not isinstance(affine, Affine) or (line := affine.line) is None or line[1]:
            return False
        factor, at = factor * line[0], parts[at].sources[0]
    return _close(factor, wanted)


def _line(parts: Parts, at: int, most: int = 8) -> tuple[int, float, float]:
    """The part that a part is made of by `most` constants, and by which scale and shift."""
    scale, shift = 1.0, 0.0
    while most and isinstance(affine := parts[at].layer, Affine) and affine.line is not None:
        own, added = affine.line
        scale, shift, at, most = scale * own, scale * added + shift, parts[at].sources[0], most - 1
    return at, scale, shift


def _close(value: float, wanted: float) -> bool:
    return abs(value - wanted) <= CLOSE * max(1.0, abs(wanted))
