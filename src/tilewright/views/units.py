"""Numbers with units, as people read them."""

from __future__ import annotations

NEARLY = 0.9995  # of a unit is one, to three digits


def seconds(value: float) -> str:
    """Three significant digits in s, ms or µs."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(value) >= NEARLY * size:
            return f"{digits(value / size)} {unit}"
    return f"{digits(value / 1e-6)} µs"


def milliseconds(value: float) -> str:
    """Three significant digits, for a column that is in ms."""
    return digits(1e3 * value)


def megabytes(value: float) -> str:
    """Three significant digits, for a column that is in MB."""
    return digits(value / 1e6)


def size(value: float) -> str:
    """Bytes in decimal units."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= NEARLY * factor:
            return f"{digits(value / factor)} {unit}"
    return f"{value:.0f} B"


def share(value: float) -> str:
    return f"{100 * value:.1f} %"


def count(value: float) -> str:
    return f"{value:,.0f}"


def plural(number: int, thing: str) -> str:
    """1 file, 2 files."""
    return f"{count(number)} {thing}{'' if number == 1 else 's'}"


def times(value: float) -> str:
    return f"{digits(value)}x"


def digits(value: float) -> str:
    """Three significant digits, never in exponent form."""
    magnitude = abs(value)
    if magnitude >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if magnitude >= 9.995 else f"{value:.2f}"
