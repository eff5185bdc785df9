"""Proofs by whoever is free, and workers that must be of one kind, without a cluster."""

from __future__ import annotations

import threading

import pytest

from tilewright.cluster.devices import UNUSABLE, Bench, check_alike
from tilewright.cluster.ladder import proven, spread
from tilewright.cluster.saying import Done, Failed
from tilewright.errors import TilewrightError
from tilewright.rungs import rungs
from tilewright.runtime.device import CPU, CUDA
from tilewright.runtime.dialect import DoesNotFit
from tilewright.truth.verify import Verdict

SERIAL, THREADS, IM2COL, *_ = rungs(CPU)


def verdict(rung):
    return Verdict(seed=len(rung.name), trials=1, outputs=1, worst=0.5, fault=None)


def test_all_workers_prove_at_the_same_time():
    meeting = threading.Barrier(3, timeout=20)

    def prover(proof, rung):
        meeting.wait()  # passes when all three are at work
        return proven(proof, rung)

    with spread([SERIAL, THREADS, IM2COL], lambda rung, tell: verdict(rung), [prover] * 3) as ask:
        for rung in (IM2COL, SERIAL, THREADS):
            assert ask(rung, lambda: None) == verdict(rung)


def test_one_worker_proves_all_and_others_are_proven_here():
    asked = []

    def proof(rung, tell):
        asked.append(rung.name)
        return verdict(rung)

    with spread([SERIAL, THREADS], proof, [proven]) as ask:
        assert ask(IM2COL, lambda: None) == verdict(IM2COL)
        assert ask(SERIAL, lambda: None) == verdict(SERIAL)
        assert ask(THREADS, lambda: None) == verdict(THREADS)
    assert sorted(asked) == sorted([SERIAL.name, THREADS.name, IM2COL.name])


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (DoesNotFit("too large"), Done("too large")),
        (TilewrightError("no room"), Failed("no room", True)),
    ],
)
def test_why_there_is_no_verdict_is_raised_where_it_is_waited_for(error, answer):
    def proof(rung, tell):
        raise error

    assert proven(proof, SERIAL) == answer
    with (
        spread([SERIAL], proof, [proven]) as ask,
        pytest.raises(type(error), match=str(error)),
    ):
        ask(SERIAL, lambda: None)


def test_workers_of_two_kinds_are_refused_and_named():
    check_alike(["a GPU", "a GPU"])
    with pytest.raises(TilewrightError, match=r"different devices.*: 2 x a GPU; 1 x another"):
        check_alike(["a GPU", "another", "a GPU"])
    with pytest.raises(TilewrightError, match="a worker's device cannot be used: no driver"):
        check_alike(["a GPU", f"{UNUSABLE}no driver"])


def test_a_worker_says_what_device_it_has(monkeypatch):
    assert "core" in Bench(0).describe(CPU)
    monkeypatch.setattr("tilewright.rungs.rungs", lambda device: [])
    assert Bench(0).describe(CUDA).startswith(UNUSABLE)
