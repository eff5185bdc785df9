from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
