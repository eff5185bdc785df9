from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interrupted import interrupted
from tilewright.threads import share


@given(st.integers(0, 40), st.integers(1, 5))
def test_every_job_is_done_once_on_no_more_threads_than_cores(jobs, cores):
    done, threads, lock = [], set(), threading.Lock()

    def work(first, last):
        with lock:
            done.extend(range(first, last))
            threads.add(threading.get_ident())

    share(work, jobs, cores)
    assert sorted(done) == list(range(jobs))
    assert len(threads) <= cores


def test_an_error_in_any_part_is_raised():
    def work(first, last):
        if first > 0:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        share(work, 10, 2)


@given(st.integers(0, 40), st.integers(1, 5), st.integers(1, 50))
def test_no_call_has_more_jobs_than_a_piece(jobs, cores, piece):
    done = []
    share(lambda first, last: done.append(range(first, last)), jobs, cores, piece)
    assert all(0 < len(part) <= piece for part in done)
    assert sorted(job for part in done for job in part) == list(range(jobs))


def is_ours(code):
    return code.co_filename == share.__code__.co_filename


def test_after_an_interrupt_at_any_bytecode_nobody_is_at_work():
    """However a call ends, what its threads write to is the caller's again."""

    def work(first, last):
        began.append(first)
        time.sleep(0.0001)
        ended.append(first)

    for at in count():
        began, ended = [], []
        if not interrupted(at, is_ours, lambda: share(work, 40, 2, 4)):
            assert sorted(began) == list(range(0, 40, 4))
            break
        after = list(began)
        assert sorted(ended) == sorted(after), f"bytecode {at}: still at work"
        time.sleep(0.0003)
        assert began == after, f"bytecode {at}: begun after the end"
    assert at > 100


def test_an_error_stops_the_other_parts():
    done = []

    def work(first, last):
        if first == 0:
            raise ZeroDivisionError
        time.sleep(0.001)
        done.append(first)

    with pytest.raises(ZeroDivisionError):
        share(work, 200_000, 2, 1)
    assert len(done) < 100_000
    before = len(done)
    time.sleep(0.005)
    assert len(done) == before


PROGRAM = """
import os, threading, time
from tilewright.threads import share
both = threading.Barrier(2)
share(lambda first, last: both.wait(), 2, 2)
time.sleep(0.05)  # both threads wait for work
child = os.fork()
share(lambda first, last: None, 4, 2)
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_in_a_child_process():
    """It has none of its parent's threads, and must not wait for them."""
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=20)
