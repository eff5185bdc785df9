"""The compiled loops: kept on disk, bounded in time, and alive in a child process."""

from __future__ import annotations

import math
import os
import threading

import numba
import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

from tests.copies import Copy, ready
from tilewright.execute import program_of
from tilewright.model.layers import (
    AveragePool,
    Convolution,
    Flatten,
    FullyConnected,
    MaxPool,
    Pixels,
    ReLU,
    Softmax,
    Tanh,
)
from tilewright.model.network import Network
from tilewright.rungs import choose
from tilewright.rungs.cpu import kept, loops, threads
from tilewright.runtime.device import CPU
from tilewright.store import open_store
from tilewright.truth.trials import random_parameters

VALUES = np.array([-1.5, 0.0, 2.5], np.float32).reshape(3, 1)


def fresh_relu():
    """The kernel as at the start of a process, which has compiled nothing yet."""
    loops.elementwise.cache_clear()
    return loops.elementwise(ReLU.function)


def hits(function):
    """How often machine code was found on disk in a run that must be right."""
    out = np.full_like(VALUES, 9)
    function(VALUES, out, 0, 3)
    np.testing.assert_array_equal(out, np.maximum(VALUES, 0))
    return sum(function.stats.cache_hits.values())


def test_machine_code_is_kept_where_the_command_line_finds_it_and_repaired(own_cache, monkeypatch):
    assert hits(fresh_relu()) == 0
    assert hits(fresh_relu()) == 1
    (path,) = open_store("numba").entries()
    assert path.parent == own_cache / "tilewright" / "numba"
    # Damage is the store's to notice: tests/test_store.py has more of it.
    path.write_bytes(path.read_bytes()[:-99])
    assert hits(fresh_relu()) == 0
    assert hits(fresh_relu()) == 1
    # What was compiled with other settings, as by NUMBA_OPT=0, is slower: not found.
    monkeypatch.setattr(numba.config, "OPT", 0)
    assert hits(fresh_relu()) == 0


def test_a_cache_that_cannot_be_written_costs_only_time(own_cache):
    (own_cache / "tilewright").write_text("no folder")
    assert hits(fresh_relu()) == 0
    assert hits(fresh_relu()) == 0


def test_what_numba_keeps_by_itself_is_not_read():
    """A truncated file beside the source, or where NUMBA_CACHE_DIR says, would end every start."""
    compiled = [each for each in vars(loops).values() if isinstance(each, Dispatcher)]
    assert len(compiled) == 10
    compiled.append(loops.elementwise(Tanh.function))
    assert all(isinstance(each._cache, kept.Kept) for each in compiled)


def test_one_code_serves_images_of_any_shape_and_layers_with_a_bias_or_without():
    relu = fresh_relu()
    run = loops.Loops(relu, (), 1, 10, rows=True).on(1)
    for shape in ((2, 3, 1, 1), (2, 3), (2, 1, 5, 4)):
        x = np.linspace(-1, 1, math.prod(shape), dtype=np.float32).reshape(shape)
        out = np.full_like(x, 9)
        run(x, out)
        np.testing.assert_array_equal(out, np.maximum(x, 0))
    assert len(relu.signatures) == 1
    weight, bias = np.ones((2, 3), np.float32), np.ones(2, np.float32)
    given = {"fc.weight": weight, "fc.bias": bias}
    for parameters in (given, {"fc.weight": weight}):
        found = loops.weight_and_bias("fc", parameters)
        assert [(each.dtype, each.flags.writeable) for each in found] == [(np.float32, False)] * 2
    assert weight.flags.writeable and bias.flags.writeable


LAYERS = (
    Convolution(6, 5, padding=2), ReLU(), MaxPool(3, stride=1), Tanh(), AveragePool(2), Flatten(),
    FullyConnected(70), Softmax(),
)  # fmt: skip


@pytest.mark.parametrize("images", [1, 1_000_000])
def test_no_call_lasts_long_however_many_images(monkeypatch, images):
    """The jobs of a batch are done in order, each once, and never too many at a time."""
    network = Network("bounded", Pixels((3, 64, 64)), LAYERS)
    network = network.with_parameters(random_parameters(network, np.random.default_rng(0)))
    for stage in network.stages:
        if stage.kind == "flatten":
            continue
        made = loops.loops_for((stage,), network.parameters)
        calls = []
        counting = loops.Loops(
            lambda x, out, first, last, *_, calls=calls: calls.append((first, last)),
            made.settings, made.jobs, made.piece,
        )  # fmt: skip
        counting.on(1)(range(images), np.empty(0, np.float32))
        ends = [0, *(last for _, last in calls)]
        assert [first for first, _ in calls] == ends[:-1]
        assert ends[-1] == images * made.jobs
        # Nanoseconds of a call, where an operation takes one.
        each = max(stage.flops, 30 * np.prod(stage.output_shape)) / made.jobs
        assert max(last - first for first, last in calls) * each < 2e8
        assert images == 1 or len(calls) < images


def test_the_caller_compiles():
    """On other threads it could not be interrupted."""
    calls = []

    def kernel(x, out, first, last):
        calls.append((threading.current_thread(), last - first))

    loops.Loops(kernel, (), 1, 10).on(2)(range(40), np.empty(0, np.float32))
    assert calls[0] == (threading.current_thread(), 0)
    assert threading.current_thread() not in [thread for thread, _ in calls[1:]]
    assert sum(jobs for _, jobs in calls) == 40


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_threads_work_in_a_child_process(monkeypatch):
    """Which has none of its parent's."""
    monkeypatch.setattr(threads, "cpu_cores", lambda: 2)  # whatever cores there are
    network = Network("n", Pixels((1, 2, 2)), (ReLU(),))
    program = program_of(network, choose(CPU, "threads"), CPU, 8)
    images = np.zeros((8, 1, 2, 2), np.float32)
    before = program(images)

    def work(pipe):
        ready(pipe)
        pipe.send(program(images))

    copy = Copy(work)
    copy.go()
    np.testing.assert_array_equal(program(images), before)
    (after,) = copy.said()
    np.testing.assert_array_equal(after, before)
