"""A small matrix of known numbers times vectors, as LLVM code with few operations.

What the matrix is decides what is shared. Columns that differ in signs only come as their sum and
their difference, rows that differ in signs only as a part that both have and one that is added to
the first and taken from the second. A product meets no more roundings than if each row were added
up by itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.fuse.cpu.code import Function, Value
from tilewright.precision import Matrix


@dataclass(frozen=True)
class Scaled:
    """A value that is still to be multiplied."""

    factor: float
    value: Value


# A value, or None: zero.
Term = Value | None


def transformed(f: Function, matrix: Matrix, values: Sequence[Term]) -> list[Term]:
    """The matrix times the values."""
    rows = [
        {place: entry for place, entry in enumerate(row) if entry and values[place] is not None}
        for row in matrix
    ]
    known = {place: value for place, value in enumerate(values) if value is not None}
    for first, second in _pairs(_columns(rows, len(known) + len(values))):
        _sum_and_difference(f, rows, known, first, second)
    made: dict[int, Term] = {}
    for first, second in _pairs(rows):
        same = {place: e for place, e in rows[first].items() if e == rows[second][place]}
        other = {place: e for place, e in rows[first].items() if place not in same}
        if len(rows[first]) > 2:
            even, odd = _combined(f, same, known), _combined(f, other, known)
            whole = _value(f, even)
            made[first] = _plus(f, odd, whole)
            made[second] = _plus(f, Scaled(-odd.factor, odd.value), whole)
    for index, row in enumerate(rows):
        if index not in made:
            made[index] = _value(f, _combined(f, row, known)) if row else None
    return [made[index] for index in range(len(rows))]


def _columns(rows: Sequence[dict[int, float]], count: int) -> list[dict[int, float]]:
    return [{i: row[c] for i, row in enumerate(rows) if c in row} for c in range(count)]


def _pairs(lines: Sequence[dict[int, float]]) -> list[tuple[int, int]]:
    """Lines with the same entries but for the signs, of which some are the same and some are
    not."""
    found: list[tuple[int, int]] = []
    for first, second in itertools.combinations(range(len(lines)), 2):
        one, other = lines[first], lines[second]
        if one.keys() != other.keys() or any(first in pair or second in pair for pair in found):
            continue
        if all(abs(entry) == abs(other[place]) for place, entry in one.items()):
            same = sum(entry == other[place] for place, entry in one.items())
            if 0 < same < len(one):
                found.append((first, second))
    return found


def _sum_and_difference(
    f: Function, rows: list[dict[int, float]], known: dict[int, Value], first: int, second: int
) -> None:
    """Two columns become two others, of which each row takes one."""
    total, difference = max(known) + 1, max(known) + 2
    known[total] = f.binary("fadd", known[first], known[second])
    known[difference] = f.binary("fsub", known[first], known[second])
    for row in rows:
        if first in row:
            entry, other = row.pop(first), row.pop(second)
            row[total if entry == other else difference] = entry


def _combined(f: Function, row: dict[int, float], known: dict[int, Value]) -> Scaled:
    """The sum of a row; what all entries have in common is left to be multiplied."""
    sizes = {abs(entry) for entry in row.values()}
    common = sizes.pop() if len(sizes) == 1 else 1.0
    # Those that are added come first, then those that are multiplied on the way.
    terms = sorted(row.items(), key=lambda item: (abs(item[1]) != common, item[1] < 0))
    (first, entry), *rest = terms
    sign = 1.0
    value = known[first]
    if entry == -common:
        sign = -1.0
    elif entry != common:
        value = f.binary("fmul", value, f.constant(entry))
    for place, each in rest:
        value = _plus(f, Scaled(sign * each / common, known[place]), value)
    return Scaled(sign * common, value)


def _plus(f: Function, term: Scaled, value: Value) -> Value:
    if abs(term.factor) == 1:
        return f.binary("fadd" if term.factor > 0 else "fsub", value, term.value)
    return f.fma(term.value, f.constant(term.factor), value)


def _value(f: Function, scaled: Scaled) -> Value:
    if scaled.factor == 1:
        return scaled.value
    return f.binary("fmul", scaled.value, f.constant(scaled.factor))
