"""Activations that files write as a value times a gate that is computed of it.

Exporters write SiLU, hard-swish, Mish and GELU in pieces. What is not recognised is a product like
any other, unless it needs an error function, which no network here has alone. Softplus, ELU
and leaky ReLU come in pieces, too: as logarithms of powers, and as one of two values.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.model.formats.parts import CLOSE, Above, Affine, Erf, Exp, Part
from tilewright.model.layers import (
    ELU,
    GELU,
    Add,
    HardSigmoid,
    HardSwish,
    Layer,
    LeakyReLU,
    Mish,
    Multiply,
    ReLU6,
    Sigmoid,
    SiLU,
    Softplus,
    Tanh,
    TanhGELU,
)
from tilewright.model.layers.gelu import CUBE, HALF, SLOPE

Parts = Sequence[Part]
# An activation, the part it is of, and how many times it.
Found = tuple[Layer, int, float]
# From here on a softplus is its argument in float32.
FAR = 17.0


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


def logarithm(parts: Parts, at: int, added: float = 0.0) -> Found | None:
    """What the logarithm of a part, and a number added to it, is: of 1 + exp(x) a softplus, of a
    logistic function a softplus turned round."""
    part = parts[at]
    if isinstance(part.layer, Sigmoid) and not added:
        return Softplus(), part.sources[0], -1.0
    core, scale, shift = _line(parts, at)
    if parts[core].layer == Exp() and _close(scale, 1.0) and _close(shift + added, 1.0):
        return Softplus(), parts[core].sources[0], 1.0
    return None


def chosen(parts: Parts, condition: int, above: int, below: int) -> Found | None:
    """What a part is above a bound, and another one below it: a leaky ReLU, an ELU, or a softplus,
    which large values are themselves."""
    compared = parts[condition].layer
    if not isinstance(compared, Above):
        return None
    (asked,) = parts[condition].sources
    for x in (asked, *parts[asked].sources[:1]):
        own, factor = _multiple(parts, above, x), _multiple(parts, asked, x)
        if own is not None and factor is not None and own > 0 and factor > 0:
            return _chosen(parts, x, compared.bound / factor, own, below)
    return None


def _chosen(parts: Parts, x: int, bound: float, own: float, below: int) -> Found | None:
    """`own` times a part above a bound, and `below` elsewhere."""
    slope = _multiple(parts, below, x)
    if slope is not None and not bound:
        return LeakyReLU(slope / own), x, own
    core, scale, shift = _line(parts, below)
    curve = parts[core].layer
    times = _multiple(parts, parts[core].sources[0], x) if parts[core].sources else None
    if shift or times is None or times <= 0:
        return None
    argument = parts[core].sources[0]
    if curve == Exp(less_one=True) and not bound:
        return ELU(scale * times / own), argument, own / times
    if isinstance(curve, Softplus) and _close(scale * times, own) and bound * times >= FAR:
        return curve, argument, scale
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
    factor = _multiple(parts, at, x)
    return factor is not None and _close(factor, wanted)


def _multiple(parts: Parts, at: int, x: int) -> float | None:
    """How many times another one a part is, if it is that."""
    factor = 1.0
    while at != x:
        affine = parts[at].layer
        if not isinstance(affine, Affine) or (line := affine.line) is None or line[1]:
            return None
        factor, at = factor * line[0], parts[at].sources[0]
    return factor


def _line(parts: Parts, at: int, most: int = 8) -> tuple[int, float, float]:
    """The part that a part is made of by `most` constants, and by which scale and shift."""
    scale, shift = 1.0, 0.0
    while most and isinstance(affine := parts[at].layer, Affine) and affine.line is not None:
        own, added = affine.line
        scale, shift, at, most = scale * own, scale * added + shift, parts[at].sources[0], most - 1
    return at, scale, shift


def _close(value: float, wanted: float) -> bool:
    return abs(value - wanted) <= CLOSE * max(1.0, abs(wanted))
