"""Proofs in processes of their own: here of CPU rungs, which need no GPU."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tilewright.errors import TilewrightError
from tilewright.model.layers import Pixels, ReLU
from tilewright.model.network import Network
from tilewright.rungs import choose, rungs
from tilewright.runtime.device import CPU
from tilewright.truth import side_by_side as proofs
from tilewright.truth.verify import Verdict

NETWORK = Network("small", Pixels((1, 3, 3)), (ReLU(),))
RUNG = choose(CPU, "im2col")
CORES = sorted(os.sched_getaffinity(0))
# What the process runs instead of the package's own.
STAND_IN = """
import os, pickle, sys
name, precision, device, network, batch = pickle.load(sys.stdin.buffer)
from tilewright.truth.verify import Verdict
from tilewright.runtime.dialect import DoesNotFit
answer = Verdict(batch, len(os.sched_getaffinity(0)), 0, 0.0, None)
if name == "threads":
    answer = DoesNotFit("too large")
if name == "serial":
    os._exit(7)
pickle.dump(answer, sys.stdout.buffer)
"""


def test_verdicts_errors_and_what_ends_come_back(monkeypatch):
    monkeypatch.setattr(proofs, "START", STAND_IN)
    able = [rung for rung in rungs(CPU) if rung.name in ("serial", "threads", "im2col")]
    with proofs.side_by_side(able, CPU, NETWORK, 12, CORES) as prove:
        verdicts = {}
        for rung in able:
            try:
                verdicts[rung.name] = prove(rung)
            except TilewrightError as error:
                verdicts[rung.name] = f"{type(error).__name__}: {error}"
    assert isinstance(verdicts["im2col"], Verdict)
    assert verdicts["im2col"].seed == 12
    assert verdicts["threads"] == "DoesNotFit: too large"
    assert "rung 'serial': the process that proves it ended (7)" in verdicts["serial"]


def test_whoever_leaves_early_leaves_nothing_running(monkeypatch):
    monkeypatch.setattr(proofs, "START", "import time; time.sleep(600)")
    with (
        pytest.raises(KeyboardInterrupt),
        proofs.side_by_side([RUNG], CPU, NETWORK, 12, CORES),
    ):
        raise KeyboardInterrupt


def test_a_process_proves_what_it_is_asked_to(monkeypatch):
    few = "import tilewright.truth.verify as v; v.trials = lambda *given: []; "
    monkeypatch.setattr(proofs, "START", few + proofs.START)
    with proofs.side_by_side([RUNG], CPU, NETWORK, 12, CORES) as prove:
        verdict = prove(RUNG)
    assert verdict.passed
    assert verdict.trials == 0


def noted(monkeypatch, cores):
    """Five rungs proven on some cores: their names, in order, and on which."""
    seen = []

    def proven(rung, given, cores, running):
        seen.append((rung.name, tuple(cores)))
        return Verdict(1, 1, 1, 0.0, None)

    monkeypatch.setattr(proofs, "_in_process", proven)
    able = [replace(RUNG, name=f"rung{number}") for number in range(5)]
    with proofs.side_by_side(able, CPU, NETWORK, 12, cores) as prove:
        assert all(prove(rung).passed for rung in able)
    return seen


def test_each_has_cores_of_its_own(monkeypatch):
    seen = noted(monkeypatch, range(6))
    assert sorted(name for name, _ in seen) == [f"rung{number}" for number in range(5)]
    assert {cores for _, cores in seen} <= {(0, 5), (1,), (2,), (3,), (4,)}


def test_the_last_of_the_ladder_begins_first(monkeypatch):
    assert [name for name, _ in noted(monkeypatch, [3])] == [
        f"rung{number}" for number in (4, 3, 2, 1, 0)
    ]
