"""Proofs in processes of their own: here of CPU rungs, which need no GPU."""

from __future__ import annotations

import io
import pickle
import threading
from concurrent.futures import Future
from dataclasses import replace

import pytest

from tilewright.errors import TilewrightError
from tilewright.model.layers import Pixels, ReLU
from tilewright.model.network import Network
from tilewright.rungs import choose, find, rungs
from tilewright.runtime.device import CPU
from tilewright.truth import side_by_side as proofs
from tilewright.truth.verify import WHOLE, Share, Verdict

NETWORK = Network("small", Pixels((1, 3, 3)), (ReLU(),))
RUNG = choose(CPU, "im2col")
ONE = proofs.Room(1)
ASKED = proofs.Asked(CPU, NETWORK, 12, seed=5)
PLENTY = 2**40  # bytes
# What the process runs instead of the package's own.
STAND_IN = """
import os, pickle, sys
name, precision, device, compilers = pickle.load(sys.stdin.buffer)
asked, share = pickle.load(sys.stdin.buffer)
from tilewright.truth.verify import Verdict
from tilewright.runtime.dialect import DoesNotFit
threads = int(os.environ["OPENBLAS_NUM_THREADS"])
answer = Verdict(asked.seed, asked.batch, 10 * threads + compilers, 0.0, None)
if name == "threads":
    answer = DoesNotFit("too large")
if name == "serial":
    os._exit(7)
pickle.dump(answer, sys.stdout.buffer)
"""


def test_verdicts_errors_and_what_ends_come_back(monkeypatch):
    monkeypatch.setattr(proofs, "START", STAND_IN)
    able = [rung for rung in rungs(CPU) if rung.name in ("serial", "threads", "im2col")]
    with proofs.side_by_side(able, ASKED, ONE) as (prove, begun):
        verdicts = {}
        for rung in able:
            try:
                verdicts[rung.name] = prove(rung)
            except TilewrightError as error:
                verdicts[rung.name] = f"{type(error).__name__}: {error}"
    assert isinstance(verdicts["im2col"], Verdict)
    assert (verdicts["im2col"].seed, verdicts["im2col"].trials) == (5, 12)
    # A thread: the others' cores are theirs. And so many compilers.
    assert verdicts["im2col"].outputs == 10 + proofs.COMPILERS
    assert all(begun[rung.label].done() for rung in able)
    assert verdicts["threads"] == "DoesNotFit: too large"
    assert "rung 'serial': the process that proves it ended (7)" in verdicts["serial"]


def test_whoever_leaves_early_leaves_nothing_running(monkeypatch):
    monkeypatch.setattr(proofs, "START", "import time; time.sleep(600)")
    with (
        pytest.raises(KeyboardInterrupt),
        proofs.side_by_side([RUNG], ASKED, ONE),
    ):
        raise KeyboardInterrupt


def test_a_process_proves_what_it_is_asked_to(monkeypatch):
    few = "import tilewright.truth.verify as v; v.trials = lambda *given: []; "
    monkeypatch.setattr(proofs, "START", few + proofs.START)
    with proofs.side_by_side([RUNG], ASKED, ONE) as (prove, _):
        verdict = prove(RUNG)
    assert verdict.passed
    assert (verdict.seed, verdict.trials) == (5, 0)


def test_processes_start_meanwhile_and_begin_after_what_is_done_first(monkeypatch):
    started, done = threading.Event(), []

    def popen(*given, **more):
        started.set()
        return Process()

    class Process:
        returncode, stdin = 3, io.BytesIO()

        def communicate(self, question):
            assert done
            # It knows before what it will be for, and can get ready.
            told = pickle.loads(self.stdin.getvalue())
            assert told == (RUNG.name, "fp32", CPU, proofs.COMPILERS)
            asked, share = pickle.loads(question)
            assert (asked.seed, share) == (ASKED.seed, WHOLE)
            return b"", b""

        def kill(self):
            pass

    def first():
        assert started.wait(20)
        done.append(True)

    monkeypatch.setattr(proofs.subprocess, "Popen", popen)
    with (
        proofs.side_by_side([RUNG], ASKED, ONE, first) as (prove, _),
        pytest.raises(TilewrightError, match="ended"),
    ):
        prove(RUNG)


def test_the_last_of_the_ladder_begins_first(monkeypatch):
    seen = []

    def proven(rung, share, asked, compilers, running, ready):
        seen.append((rung.name, compilers))
        return Verdict(1, 1, 1, 0.0, None)

    monkeypatch.setattr(proofs, "_in_process", proven)
    able = [replace(RUNG, name=f"rung{number}") for number in range(5)]
    with proofs.side_by_side(able, ASKED, proofs.Room(1, 3)) as (prove, _):
        assert all(prove(rung).passed for rung in able)
    assert seen == [(f"rung{number}", 3) for number in (4, 3, 2, 1, 0)]


def test_a_rung_of_many_layers_at_once_is_proven_in_shares(monkeypatch):
    whole, seen = find("network").at("fp16"), []

    def proven(rung, share, *more):
        seen.append((rung.name, share))
        return Verdict(5, 10 + share.number, 100, 0.5 - 0.1 * share.number, None)

    monkeypatch.setattr(proofs, "_in_process", proven)
    with proofs.side_by_side([RUNG, whole], ASKED, ONE) as (prove, _):
        assert prove(whole) == Verdict(5, 21, 200, 0.5, None)
    assert seen[:2] == [("network", Share(0, 2)), ("network", Share(1, 2))]
    assert proofs.shares(find("direct"), NETWORK) == proofs.shares(find("torch"), NETWORK)
    assert proofs.shares(find("torch"), NETWORK) == [WHOLE]


def test_all_are_proven_at_once_if_there_is_room():
    assert proofs.room(17, 16, PLENTY, PLENTY) == proofs.Room(17, proofs.COMPILERS)
    assert proofs.room(2, 16, PLENTY, PLENTY) == proofs.Room(2, 8)
    assert proofs.room(17, 2, PLENTY, PLENTY) == proofs.Room(2, 2)
    assert proofs.room(17, 1, PLENTY, PLENTY) == proofs.Room(1, 1)
    # Of a GPU's memory, and of the host's.
    assert proofs.room(17, 16, 9 * 2**30, PLENTY).proofs == 4
    assert proofs.room(17, 16, PLENTY, 7 * 2**30).proofs == 3
    assert proofs.room(17, 16, PLENTY, 2**30).proofs == 1


def test_rungs_come_in_the_order_in_which_they_are_done():
    able = [replace(RUNG, name=name) for name in "abcd"]
    begun = {name: Future() for name in "acd"}
    order = proofs.as_they_come(able, begun)
    assert next(order).name == "b"  # is not being proven
    begun["d"].set_result(1)
    assert next(order).name == "d"
    begun["a"].set_exception(TilewrightError("no"))
    assert next(order).name == "a"
    begun["c"].set_result(1)
    assert [rung.name for rung in order] == ["c"]
