from __future__ import annotations

import pytest

from tilewright.views import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.00 µs"), (1.5e-7, "0.15 µs"), (9.99e-4, "999 µs"), (9.999e-4, "1.00 ms"),
        (0.9996, "1.00 s"), (0.0123, "12.3 ms"),
        (1, "1.00 s"), (9.996, "10.0 s"), (12345, "12,345 s"),
    ],
)  # fmt: skip
def test_seconds(value, text):
    assert units.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(80, "80 B"), (1500, "1.50 kB"), (5.2e6, "5.20 MB"), (3e10, "30.0 GB")]
)
def test_size(value, text):
    assert units.size(value) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 images"), (1, "1 image"), (2, "2 images"), (1000, "1,000 images")]
)
def test_plural(number, text):
    assert units.plural(number, "image") == text
