"""A function in a process of its own."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pytest

from tests.reporting import given
from tilewright.errors import TilewrightError
from tilewright.reporting import process as processes
from tilewright.reporting.process import START, elsewhere, started_ahead


@pytest.fixture(autouse=True)
def quick_start(request, monkeypatch):
    """Without the libraries of a run, which the functions here have no use for."""
    if request.function is not test_a_process_that_nobody_waits_for_ends_in_silence:
        monkeypatch.setattr(processes, "START", START.partition("; ")[2])


def test_it_gives_what_the_function_gives_and_tells_how_far_it_is():
    seen = []
    words, process = elsewhere(given.well, lambda *now: seen.append(now), words="four words")
    assert (words, seen) == ("four words", [("counting", 1, 2)])
    assert process != os.getpid()


def test_an_error_there_is_one_here():
    with pytest.raises(TilewrightError, match="there is no such rung"):
        elsewhere(given.wrong, lambda *now: None, words="such rung")


def test_a_process_that_dies_is_an_error_with_its_code():
    with pytest.raises(TilewrightError, match=r"its process ended \(7\) without an answer"):
        elsewhere(given.gone, lambda *now: None, words="")


def test_a_process_that_nobody_waits_for_ends_in_silence():
    """As when the one who asked was killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", START], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    process.stdout.close()
    _, said = process.communicate(pickle.dumps((given.well, {"words": ""})), timeout=60)
    assert process.returncode == 1
    assert b"Traceback" not in said


def test_a_process_may_be_there_before_it_is_asked_and_its_waiting_does_not_count(monkeypatch):
    started = []
    start = processes._start
    monkeypatch.setattr(processes, "_start", lambda: started.append(start()) or started[-1])
    with started_ahead():
        (first,) = started
        process, elapsed, waited = elsewhere(given.taken, lambda *now: None)
        assert len(started) == 2  # the next was begun meanwhile
    assert process == first.pid
    assert elapsed + waited > waited > 0
    assert all(each.poll() is not None for each in started)  # and so is the last, unasked


def test_a_process_that_nobody_asks_ends_in_silence():
    process = processes._start()
    said, _ = process.communicate(timeout=60)
    assert (process.returncode, said) == (1, b"")


def test_who_stops_waiting_stops_the_process():
    seen = []

    def interrupt(*now):
        seen.append(now)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        elsewhere(given.well, interrupt, words="")
    assert len(seen) == 1
