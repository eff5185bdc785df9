from __future__ import annotations

from tilewright.fuse.cpu.peak import Peak


def test_the_peak_is_one_of_a_cpu():
    """Between an old laptop and a large server: a wrong count would be off by far more."""
    peak = Peak()
    assert 2e9 < peak.measure() <= peak.measure() < 2e14
