"""Threads that help each other: whoever comes, late or never, the result is the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tests.copies import Copy, ready
from tests.interrupted import Interrupted, interrupted
from tilewright.fuse.cpu import team as team_module
from tilewright.fuse.cpu.arrays import address, aligned
from tilewright.fuse.cpu.run import FusedNetwork
from tilewright.fuse.cpu.team import APART_FLOATS, Memory, Team, team
from tilewright.fuse.cpu.tickets import BUSY, Tickets

IMAGES = np.random.default_rng(0).integers(0, 256, (7, 3, 32, 32), np.uint8)


@pytest.fixture(scope="module")
def fused():
    return FusedNetwork(tilewright.load("cifar10"))


def test_helpers_awake_or_asleep_give_the_same_bits(fused):
    for size in (1, 3, 7):
        expected = fused(IMAGES[:size])
        for pause in [0.0] * 100 + [0.002] * 10:
            time.sleep(pause)
            np.testing.assert_array_equal(fused(IMAGES[:size]), expected)


def test_what_workers_write_lies_apart():
    """Each has room for all its floats, and as much again before the next one's as is said."""
    ticks, first, stride = (memory := Memory(5000, 100, 3, 2)).arguments
    assert stride >= 4 * (5000 + APART_FLOATS) and stride % 4096 == 0
    slots = address(memory.scratch)
    assert slots + 4 * 100 <= first and first + 2 * stride <= slots + memory.scratch.nbytes
    assert ticks == address(memory.ticks)


def test_calls_that_find_the_team_busy_work_alone(fused):
    expected = fused(IMAGES[:1])
    control = team().control
    before = control.copy()
    control[BUSY] = 1
    np.testing.assert_array_equal(fused(IMAGES[:1]), expected)
    control[BUSY] = 0
    np.testing.assert_array_equal(control, before)
    np.testing.assert_array_equal(fused(IMAGES[:1]), expected)
    assert team().cores == 1 or (control != before).any()


def test_more_threads_than_cores_share_a_team(fused):
    expected = [fused(IMAGES[: n + 1]) for n in range(7)]
    wrong = []

    def call(n):
        for _ in range(50):
            if not np.array_equal(fused(IMAGES[: n + 1]), expected[n]):
                wrong.append(n)

    threads = [threading.Thread(target=call, args=(n,)) for n in range(7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def is_ours(code):
    """Whether it is one of the fused rung's functions."""
    return Path(code.co_filename).parent.name == "cpu"


@pytest.fixture
def three_helpers(monkeypatch):
    """A team of this thread's own, whatever cores there are."""
    cores = sorted(os.sched_getaffinity(0)) if team_module.PLACED else [0]
    made = Team(tuple((cores * 3)[:3]))
    monkeypatch.setattr(team_module, "_own", threading.local())
    team_module._own.team = made
    yield made
    made.end()


@pytest.mark.parametrize("images", [1, 7])
def test_an_interrupt_at_any_bytecode_does_no_harm(fused, three_helpers, images):
    """Wherever a call is interrupted, nothing is written to its arrays any more, the helpers are
    there for the next call, and that is right."""
    expected = fused(IMAGES[:images])
    outputs, next_outputs = np.empty_like(expected), np.empty_like(expected)
    for at in count():
        if not interrupted(at, is_ours, partial(fused.run, IMAGES[:images], outputs)):
            break
        outputs.fill(7)
        for helper in three_helpers.helpers:
            helper.wake()  # it would go on with what was left to do
        time.sleep(0.0002)
        before = three_helpers.control[0]
        fused.run(IMAGES[:images], next_outputs)
        assert three_helpers.control[0] != before, f"bytecode {at}: helpers lost"
        np.testing.assert_array_equal(next_outputs, expected)
        assert (outputs == 7).all(), f"bytecode {at}: written to after the end"
    assert at > 100
    np.testing.assert_array_equal(outputs, expected)
    given_back = fused.free[three_helpers.workers]
    assert len(set(map(id, given_back))) == len(given_back)


def test_an_interrupt_while_a_team_is_made(fused, monkeypatch):
    expected, tickets = fused(IMAGES[:3]), Tickets()
    monkeypatch.setattr(team_module, "Tickets", lambda: tickets)
    for at in count(0, 3):
        monkeypatch.setattr(team_module, "_own", threading.local())
        monkeypatch.setattr(team_module, "_teams", {})
        if not interrupted(at, is_ours, team):
            break
        np.testing.assert_array_equal(fused(IMAGES[:3]), expected)
        team().end()
    team().end()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
def test_signals_while_other_threads_call(fused):
    """A handler that raises, at moments of the clock's choosing."""
    expected = [fused(IMAGES[:size]) for size in range(8)]
    wrong, ended = [], threading.Event()

    def call():
        while not ended.is_set():
            if not np.array_equal(fused(IMAGES[:5]), expected[5]):
                wrong.append("beside")

    def handler(*_):
        raise Interrupted

    others = [threading.Thread(target=call) for _ in range(2)]
    for other in others:
        other.start()
    usual = signal.signal(signal.SIGALRM, handler)
    try:
        for turn in range(100):
            outputs = np.empty_like(expected[7])
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + 7 * turn))
                while True:
                    fused.run(IMAGES, outputs)
            except Interrupted:
                outputs.fill(7)
            if not np.array_equal(fused(IMAGES), expected[7]):
                wrong.append("after")
            if not (outputs == 7).all():
                wrong.append("written to")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)
        ended.set()
        for other in others:
            other.join()
    assert not wrong
    assert team().control[BUSY] == 0


UNPLACED = """
import os
import numpy as np
del os.sched_setaffinity, os.sched_getaffinity  # as on a system that places threads itself
import tilewright
fused = tilewright.compile(tilewright.load("cifar10"))
images = np.zeros((3, 3, 32, 32), np.uint8)
first = fused(images)
if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0
assert (fused(images) == first).all()
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads are not placed here")
def test_where_threads_are_not_placed():
    """And in a child that ends as programs do."""
    subprocess.run([sys.executable, "-c", UNPLACED], check=True, timeout=60)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads are not placed here")
def test_on_one_core(fused):
    def work(pipe):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
        ready(pipe)
        pipe.send((team().cores, FusedNetwork(tilewright.load("cifar10"))(IMAGES)))

    copy = Copy(work)
    copy.go()
    ((cores, outputs),) = copy.said()
    assert cores == 1
    np.testing.assert_array_equal(outputs, fused(IMAGES))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_in_a_child_process(fused):
    """It has none of its parent's threads: it must start its own, and never wait for them."""
    expected, ended, parents = fused(IMAGES[:3]), threading.Event(), team()

    def call():
        while not ended.is_set():
            fused(IMAGES[:3])

    def work(pipe):
        ready(pipe)
        pipe.send((fused(IMAGES[:3]), team() is parents))

    caller = threading.Thread(target=call)
    caller.start()  # has the helpers, most of the time
    try:
        copy = Copy(work)
    finally:
        ended.set()
        caller.join()
    copy.go()
    ((outputs, old),) = copy.said()
    np.testing.assert_array_equal(outputs, expected)
    assert not old


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_in_a_child_that_is_forked_while_another_thread_compiles(fused):
    expected, ended = fused(IMAGES[:3]), threading.Event()

    def compile_on():
        while not ended.is_set():
            Tickets()  # and given back

    def work(pipe):
        ready(pipe)
        pipe.send(fused(IMAGES[:3]))

    compiler = threading.Thread(target=compile_on)
    compiler.start()
    try:
        copies = [Copy(work) for _ in range(3)]
    finally:
        ended.set()
        compiler.join()
    for copy in copies:
        copy.go()
        (outputs,) = copy.said()
        np.testing.assert_array_equal(outputs, expected)


def test_addresses():
    values = np.arange(5, dtype=np.float32)
    assert address(values) == values.ctypes.data
    values.flags.writeable = False
    assert address(values) == values.ctypes.data
    assert address(values[:0]) == values[:0].ctypes.data
    assert address(aligned(5, np.float32)) % 64 == 0
