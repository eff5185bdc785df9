"""Kernels compiled side by side, by stand-ins for the compiler's processes, and by real ones."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from tilewright.errors import TilewrightError
from tilewright.runtime import compilers, nvrtc
from tilewright.runtime.compilers import Pool, Process
from tilewright.runtime.nvrtc_worker import Answer

needs_nvrtc = pytest.mark.skipif(nvrtc.missing() is not None, reason=str(nvrtc.missing()))
KERNEL = 'extern "C" __global__ void k(int *x) { x[0] = %d; }'


class Counted(Process):
    """Answers with the text; remembers whether it was ended."""

    def __init__(self):
        self.ended = False

    def translate(self, name, text, architecture):
        return Answer(text, b"")

    def end(self):
        self.ended = True


def log(translate, question):
    return translate(*question).log


def test_as_many_at_once_as_there_are_processes():
    """None is done before three are at work: each waits for the others."""
    together = threading.Barrier(3)

    def meet(translate, question):
        together.wait(timeout=60)
        return log(translate, question)

    pool = Pool(meet, 3, Counted)
    answers = [pool.submit(("k", str(number), "sm_90")) for number in range(6)]
    assert [answer.result() for answer in answers] == [str(number) for number in range(6)]
    assert len(pool.processes) == 3


def test_none_more_than_needed():
    pool = Pool(log, 8, Counted)
    for number in range(5):
        pool.submit(("k", str(number), "sm_90")).result()
        while not pool.idle:
            time.sleep(0.001)
    assert len(pool.processes) == 1


def test_they_end_when_there_is_nothing_to_do_and_begin_again(monkeypatch):
    monkeypatch.setattr(compilers, "IDLE_SECONDS", 0.01)
    pool = Pool(log, 2, Counted)
    assert pool.submit(("k", "a", "sm_90")).result() == "a"
    (process,) = pool.processes or {None}
    while pool.processes:
        time.sleep(0.001)
    assert process is None or process.ended
    assert pool.submit(("k", "b", "sm_90")).result() == "b"


def test_an_error_is_raised_where_the_answer_is_asked_for():
    def refuse(translate, question):
        raise TilewrightError(f"not {question[0]}")

    pool = Pool(refuse, 1, Counted)
    for name in ("a", "b"):
        with pytest.raises(TilewrightError, match=f"not {name}"):
            pool.submit((name, "", "sm_90")).result()


def test_at_the_end_nothing_is_begun_any_more():
    begun, may_go = threading.Event(), threading.Event()
    done = []

    def wait(translate, question):
        begun.set()
        may_go.wait(timeout=60)
        done.append(question[1])

    pool = Pool(wait, 1, Counted)
    first, _ = (pool.submit(("k", text, "sm_90")) for text in ("first", "second"))
    begun.wait(timeout=60)
    (process,) = pool.processes
    pool.end()
    assert process.ended
    may_go.set()
    first.result()
    while not pool.waiting.empty():
        time.sleep(0.001)
    assert done == ["first"]


@needs_nvrtc
def test_whoever_leaves_at_once_leaves_quietly(tmp_path):
    """Compilers are killed with their kernels half done, or are started for nobody."""
    text = "from tilewright.runtime import nvrtc; nvrtc.compile_ahead((str(n), "
    text += "'__global__ void k(int *x) { x[0] = %d; }' % n, 'sm_90') for n in range(9))"
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", text], env=environment, capture_output=True, check=True
    )
    assert (done.stdout, done.stderr) == (b"", b"")


@needs_nvrtc
def test_a_process_gives_what_the_library_gives():
    from tilewright.runtime.nvrtc_worker import translate

    process = Process()
    try:
        for text in (KERNEL % 1, "no kernel", KERNEL % 2):
            there, here = (made("k", text, "sm_90") for made in (process.translate, translate))
            assert there.cubin == here.cubin
            assert there.log.split("Compile time")[0] == here.log.split("Compile time")[0]
    finally:
        process.end()
    assert process.running is None


@needs_nvrtc
def test_a_process_that_is_killed_is_an_error_and_another_takes_its_place():
    process = Process()
    process.translate("k", KERNEL % 1, "sm_90")
    process.running.kill()
    with pytest.raises(TilewrightError, match=r"CUDA compiler, k for sm_90: its process ended"):
        process.translate("k", KERNEL % 1, "sm_90")
    assert process.translate("k", KERNEL % 1, "sm_90").cubin
    process.end()
