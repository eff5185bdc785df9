"""The benchmark of serving: callers that really call at once, and its tables."""

from __future__ import annotations

import threading

import pytest
from benchmarks import tables
from benchmarks.serving import Callers, measure


def test_a_turn_is_so_many_calls_of_so_many_threads():
    callers: list[int] = []
    together = threading.Barrier(3)

    def make():
        def call():
            callers.append(threading.get_ident())
            together.wait(timeout=100)  # nobody goes on before all have called

        return call

    team = Callers(make, 4)
    seconds = team.turn(3, 5)
    team.end()
    assert len(seconds) == len(callers) == 15
    assert len(set(callers)) == 3


def test_a_caller_that_fails_is_heard_of():
    def no():
        raise ValueError("no GPU")

    for make in (no, lambda: no):
        with pytest.raises(RuntimeError, match="a caller failed") as caught:
            Callers(make, 2).turn(2, 1)
        assert isinstance(caught.value.__cause__, ValueError)


def test_rows_become_a_table(monkeypatch):
    monkeypatch.setattr("benchmarks.serving.TURN_SECONDS", 0.0)
    made = {name: Callers(lambda: lambda: None, 2) for name in ("tilewright", "other")}
    row = measure(made, batch=2, threads=1, rounds=6, pause=0.0)
    document = {"rows": [{"network": "n", "precision": "fp32", **row}], "host": []}
    (value,) = (each["value"] for each in row["times"])
    head, _, line = tables.serving(document, (1,)).splitlines()
    assert head.startswith("| network | precision | images | threads | tilewright, p50 | p99 |")
    assert line.startswith("| `n` | fp32 | 2 | 1 |") and f"| {value:.2f} |" in line
    assert len(tables.serving(document, (8,)).splitlines()) == 2
    assert row["engines"]["other"]["p50_seconds"] <= row["engines"]["other"]["p99_seconds"]
