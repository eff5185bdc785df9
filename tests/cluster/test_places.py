from __future__ import annotations

import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.cluster.places import Places, places, take_cores
from tilewright.errors import TilewrightError
from tilewright.runtime.device import CPU, Device

MACHINES = st.lists(st.tuples(st.integers(1, 64), st.integers(0, 8)), min_size=1, max_size=5)


@given(MACHINES, st.data())
def test_workers_have_room_and_no_core_is_idle_without_need(machines, data):
    there = sum(cpus for cpus, _ in machines)
    wanted = data.draw(st.integers(1, there))
    found = places(CPU, wanted, machines)
    assert found.workers == wanted
    assert sum(cpus // found.cpus for cpus, _ in machines) >= wanted
    assert sum(cpus // (found.cpus + 1) for cpus, _ in machines) < wanted


def test_one_for_each_processor_or_gpu():
    assert places(CPU, None, [(2, 0), (4, 0)]) == Places(6, 1, 0)
    assert places(Device.parse("cuda"), None, [(2, 1), (64, 8)]) == Places(9, 1, 1)
    assert places(Device.parse("cuda"), 2, [(2, 1), (64, 8)]) == Places(2, 1, 1)
    # Whoever has a GPU takes a processor: a ninth would wait for ever.
    assert places(Device.parse("cuda"), None, [(2, 8), (6, 6)]) == Places(8, 1, 1)


@pytest.mark.parametrize(
    ("device", "wanted", "words"),
    [
        ("cuda", None, "--on ray: the cluster has no GPU"),
        ("cuda:1", None, "--device cuda:1: on a cluster each worker has its own"),
        ("cpu", 3, "--workers 3: the cluster has 2 processors, one for each worker"),
    ],
)
def test_no_room_is_said(device, wanted, words):
    with pytest.raises(TilewrightError, match=words):
        places(Device.parse(device), wanted, [(2, 0)])


@pytest.mark.skipif(sys.platform != "linux", reason="cores are chosen on Linux only")
def test_no_two_workers_have_the_same_cores(monkeypatch):
    chosen = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda who: {1000, 1001, 1002, 1003, 1004})
    monkeypatch.setattr(os, "sched_setaffinity", lambda who, cores: chosen.append(tuple(cores)))
    one, other, third = (take_cores(2) for _ in range(3))
    assert chosen == [(1000, 1001), (1002, 1003)] and third is None
    one.close()  # as when its process ends
    with take_cores(2), other:
        assert chosen[2:] == [(1000, 1001)]
    assert take_cores(5) is None and len(chosen) == 3
