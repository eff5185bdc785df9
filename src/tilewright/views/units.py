"""Numbers with units, as people read them; each still knows its value."""

from __future__ import annotations

import math

NEARLY = 0.9995  # of a unit is one, to three digits


class Quantity(str):
    """A number as people read it. `value` has all its digits, in `unit`, whatever unit the text
    has; `unit` is empty where the number has none or its column names it.
    """

    __slots__ = ("unit", "value")
    value: float
    unit: str

    def __new__(cls, text: str, value: float, unit: str = "") -> Quantity:
        made = super().__new__(cls, text)
        made.value, made.unit = value, unit
        return made

    def __reduce__(self) -> tuple[type[Quantity], tuple[str, float, str]]:
        return Quantity, (str(self), self.value, self.unit)


def seconds(value: float) -> Quantity:
    """Three significant digits in s, ms or µs."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(value) >= NEARLY * size:
            return Quantity(f"{digits(value / size)} {unit}", value, "s")
    return Quantity(f"{digits(value / 1e-6)} µs", value, "s")


def milliseconds(value: float) -> Quantity:
    """Three significant digits, for a column that is in ms; the number is in seconds."""
    return Quantity(digits(1e3 * value), value, "s")


def megabytes(value: float) -> Quantity:
    """Three significant digits, for a column that is in MB; the number is in bytes."""
    return Quantity(digits(value / 1e6), value, "B")


def size(value: float) -> Quantity:
    """Bytes in decimal units."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= NEARLY * factor:
            return Quantity(f"{digits(value / factor)} {unit}", value, "B")
    return Quantity(f"{value:.0f} B", value, "B")


def share(value: float) -> Quantity:
    return Quantity(f"{100 * value:.1f} %", 100 * value, "%")


def count(value: float) -> Quantity:
    return Quantity(f"{value:,.0f}", value)


def plural(number: int, thing: str) -> str:
    """1 file, 2 files."""
    return f"{count(number)} {thing}{'' if number == 1 else 's'}"


def times(value: float) -> Quantity:
    """How many times as fast, wherever it stands without another word."""
    return Quantity(f"{digits(value)}x", value, "x")


def digits(value: float) -> Quantity:
    """Three significant digits, never in exponent form."""
    magnitude = abs(value)
    if magnitude >= 99.95:
        return Quantity(f"{value:,.0f}", value)
    return fixed(value, 1 if magnitude >= 9.995 else 2)


def of_bound(share: float) -> Quantity:
    """Rounded down: less than all of a bound must not look like all of it."""
    return Quantity(f"{math.floor(100 * share) / 100:.2f}", share)


def fixed(value: float, places: int) -> Quantity:
    """So many digits behind the point."""
    return Quantity(f"{value:.{places}f}", value)
