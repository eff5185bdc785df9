"""Proofs by whoever is free, and workers that must be of one kind, without a cluster."""

from __future__ import annotations

import sys
import threading
from unittest import mock

import pytest

from tests.cluster.made import NETWORK
from tests.cluster.near import Near
from tilewright.climb import Subject
from tilewright.cluster.devices import UNUSABLE, Bench, check_alike
from tilewright.cluster.ladder import climb_on, proven, spread
from tilewright.cluster.saying import Done, Failed
from tilewright.cluster.tune import Tuner, tune_on
from tilewright.data.drawn import pictures
from tilewright.errors import TilewrightError
from tilewright.rungs import rungs
from tilewright.runtime.device import CPU, CUDA
from tilewright.runtime.dialect import DoesNotFit
from tilewright.truth.verify import Verdict
from tilewright.tune.whole import Asked

SERIAL, THREADS, IM2COL, *_ = rungs(CPU)


def verdict(rung):
    return Verdict(seed=len(rung.name), trials=1, outputs=1, worst=0.5, fault=None)


def test_all_workers_prove_at_the_same_time():
    meeting = threading.Barrier(3, timeout=20)

    def prover(proof, rung):
        meeting.wait()  # passes when all three are at work
        return proven(proof, rung)

    able = [SERIAL, THREADS, IM2COL]
    with spread(able, lambda rung, tell: verdict(rung), [prover] * 3) as proofs:
        for rung in (IM2COL, SERIAL, THREADS):
            assert proofs.prove(rung, lambda: None) == verdict(rung)
        assert set(proofs.begun) == {SERIAL.label, THREADS.label, IM2COL.label}


def test_one_worker_proves_all_and_others_are_proven_here():
    asked = []

    def proof(rung, tell):
        asked.append(rung.name)
        return verdict(rung)

    with spread([SERIAL, THREADS], proof, [proven]) as proofs:
        assert proofs.prove(IM2COL, lambda: None) == verdict(IM2COL)
        assert proofs.prove(SERIAL, lambda: None) == verdict(SERIAL)
        assert proofs.prove(THREADS, lambda: None) == verdict(THREADS)
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
        spread([SERIAL], proof, [proven]) as proofs,
        pytest.raises(type(error), match=str(error)),
    ):
        proofs.prove(SERIAL, lambda: None)


def test_workers_of_two_kinds_are_refused_and_named():
    check_alike(["a GPU", "a GPU"])
    with pytest.raises(TilewrightError, match=r"different devices.*: 2 x a GPU; 1 x another"):
        check_alike(["a GPU", "another", "a GPU"])
    with pytest.raises(TilewrightError, match="a worker's device cannot be used: no driver"):
        check_alike(["a GPU", f"{UNUSABLE}no driver"])


@pytest.mark.parametrize("kinds", [("H200", "H200", "L4"), ("H200", "H200", "H200")])
def test_no_table_is_of_two_kinds(monkeypatch, tmp_path, kinds):
    """Machines with a GPU each, described as a cluster would: asked before anything is measured."""
    monkeypatch.setitem(sys.modules, "ray", Near(*3 * [{"CPU": 8.0, "GPU": 1.0}]))
    climbed, tuned, found = [], [], iter(2 * kinds)
    monkeypatch.setattr(Bench, "describe", lambda self, device: next(found))

    def climb(*, progress, audience, elsewhere):
        climbed.append(kinds)

    def tune(self, asked, others):
        tuned.append(kinds)
        yield Done(len(others))

    monkeypatch.setattr(Tuner, "tune", tune)
    subject = Subject(NETWORK, pictures(NETWORK.input.shape, 1), "random weights")
    asked = Asked(subject, "small", ("network",), CUDA, 2, 2, None, 1, tmp_path / "plan.json")
    quiet = mock.Mock()
    works = [
        lambda: climb_on(climb, CUDA, None, None, quiet, quiet)[0],
        lambda: tune_on(asked, None, None, quiet, quiet),
    ]
    if kinds[-1] == "H200":
        assert [work() for work in works] == [None, 2] and climbed and tuned
        return
    for work in works:
        with pytest.raises(TilewrightError, match=r"different devices.*: 2 x H200; 1 x L4$"):
            work()
    assert not climbed and not tuned


def test_a_worker_says_what_device_it_has(monkeypatch):
    assert "core" in Bench(0).describe(CPU)
    monkeypatch.setattr("tilewright.rungs.rungs", lambda device: [])
    assert Bench(0).describe(CUDA).startswith(UNUSABLE)
