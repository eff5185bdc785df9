"""A function in a process of its own."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pytest

from tests.reporting import given
from tilewright.errors import TilewrightError
from tilewright.reporting.process import START, elsewhere


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


def test_who_stops_waiting_stops_the_process():
    seen = []

    def interrupt(*now):
        seen.append(now)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        elsewhere(given.well, interrupt, words="")
    assert len(seen) == 1
