"""Candidates timed by others before they are asked for, without a cluster."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.cluster.made import NETWORK
from tests.cluster.near import Near
from tilewright.climb import Subject
from tilewright.cluster import session
from tilewright.cluster.saying import Doing, Done, Failed, Told
from tilewright.cluster.tune import REPEATS, Helped, Tuner, tune_on
from tilewright.data.drawn import pictures
from tilewright.errors import TilewrightError
from tilewright.runtime.device import CPU
from tilewright.tune.search import Candidate
from tilewright.tune.whole import Asked, rungs_named

ONE, OTHER = (Candidate.of("fused", "fp32", {"tile": size}) for size in (1, 2))


class Span:
    name = "conv1"


class Here:
    """The first worker's own device, which times nothing but whole plans."""

    def race(self, plans, progress):
        return {name: len(plans) for name in plans}


def test_what_is_said_ahead_is_timed_meanwhile_and_once():
    meeting, asked = threading.Barrier(2, timeout=20), []

    def other(span, candidate, repeats):
        meeting.wait()  # passes when both are at work
        asked.append(candidate)
        return Done([float(candidate.plain["tile"])] * repeats)

    helped = Helped(Here(), [other, other])
    helped.ahead(Span, [ONE, OTHER])
    helped.ahead(Span, [OTHER])
    seconds = helped.timer(Span)
    assert (seconds(ONE, 1), seconds(OTHER, 1)) == ([1.0], [2.0])
    assert seconds(OTHER, REPEATS - 1) == [2.0] * (REPEATS - 1)
    assert sorted(asked, key=str) == [ONE, OTHER]
    assert helped.race({"plan": None}, print) == {"plan": 1}


def test_what_nobody_said_ahead_is_timed_when_it_is_asked_for():
    helped = Helped(Here(), [lambda span, candidate, repeats: Done([0.5] * repeats)])
    assert helped.timer(Span)(ONE, 1) == [0.5]


def test_what_cannot_be_built_elsewhere_is_an_error_here():
    helped = Helped(Here(), [lambda *given: Failed("does not fit", True)])
    with pytest.raises(TilewrightError, match="does not fit"):
        helped.timer(Span)(ONE, 1)


def test_a_worker_tunes_and_tells(tmp_path, monkeypatch):
    monkeypatch.setattr("tilewright.tune.device.ROUNDS", 2)
    subject = Subject(NETWORK, pictures(NETWORK.input.shape, 1), "random weights")
    asked = Asked(subject, "small", ("im2col",), CPU, 2, 2, None, 1, tmp_path / "plan.json")
    *told, done = Tuner(0).tune(asked, [])
    assert all(isinstance(words, Told) and isinstance(words.words, Doing) for words in told)
    assert isinstance(done, Done) and done.found.plans[0].name.startswith("im2col")
    assert asked.out.is_file() and asked.kept.is_file()


def test_candidates_are_timed_by_others_and_plans_by_the_first(tmp_path, monkeypatch):
    monkeypatch.setattr("tilewright.tune.device.ROUNDS", 2)
    monkeypatch.setattr(session, "library", Near)
    monkeypatch.chdir(tmp_path)
    subject = Subject(NETWORK, pictures(NETWORK.input.shape, 1), "random weights")
    asked = Asked(subject, "small", ("im2col",), CPU, 2, 2, None, 1, Path("plan.json"))
    timed, tuned, told = [], [], []
    seconds, tune = Tuner.seconds, Tuner.tune

    def noted(tuner, *given):
        timed.append(tuner)
        return seconds(tuner, *given)

    def begun(tuner, asked, others):
        tuned.append((tuner, asked.out, len(others)))
        return tune(tuner, asked, others)

    monkeypatch.setattr(Tuner, "seconds", noted)
    monkeypatch.setattr(Tuner, "tune", begun)
    made = tune_on(asked, 2, None, lambda doing, done, of: told.append(doing), pytest.fail)
    assert [plan.name for plan in made.plans] == ["im2col, own choice"]
    ((first, out, others),) = tuned
    assert timed and first not in timed
    assert (out, others) == (tmp_path / "plan.json", 1) and out.is_file()
    assert told[:2] == ["starting the cluster", "starting workers"] and len(told) > 2


def test_a_worker_fetches_what_it_works_on_once():
    fetched = []

    class Workshop:
        def timer(self, span):
            return lambda candidate, repeats: (0.25,) * repeats

    def fetch():
        fetched.append(1)
        return Workshop()

    tuner = Tuner(0)
    assert [tuner.seconds(fetch, Span, ONE, 2) for _ in range(2)] == [Done([0.25, 0.25])] * 2
    assert len(fetched) == 1


def test_rungs_have_each_name_once():
    assert [rung.name for rung in rungs_named(["im2col", "im2col"], CPU, None)] == ["im2col"]
    with pytest.raises(TilewrightError, match="did you mean 'im2col'"):
        rungs_named(["im2coll"], CPU, None)
