"""A data set through a Ray cluster of this machine's own: the answers of one process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import tilewright
from tests.classroom.made import NOW, TASK, right, store_with
from tests.classroom.test_workers import all_done, wait
from tests.cluster.judges import Meeting
from tests.cluster.made import IMAGES, LABELS, NETWORK
from tests.profiling.made import CEILINGS
from tilewright.classroom.course import Course
from tilewright.climb import Subject
from tilewright.cluster import session
from tilewright.cluster.pool import RayPool
from tilewright.cluster.tune import tune_on
from tilewright.data.drawn import pictures
from tilewright.errors import TilewrightError
from tilewright.plan_file import read
from tilewright.profiling import ceilings
from tilewright.runtime.device import CPU, CUDA
from tilewright.tune.whole import Asked

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'tilewright[cluster]'")

# One worker of the tests has the cluster: each would start its own.
pytestmark = pytest.mark.xdist_group("ray")
ASKED = {"data": (IMAGES, LABELS), "batch": 8, "rung": "im2col"}


@pytest.fixture(scope="module")
def cluster():
    """One for all tests. It is told of two GPUs: what is sent there needs none. It is not watched
    for machines to start, nor its logs for lines to print, and shows itself to nobody: processes
    that nobody here asks."""
    told = partial(ray.init, num_gpus=2)
    with mock.patch.object(ray, "init", told), unwatched(), session.connected(None, processors=2):
        yield


@contextmanager
def unwatched():
    """By names that are Ray's own: with a version that has others, those processes start, too."""
    try:
        from ray._private.node import Node
    except ImportError:
        yield
        return
    with ExitStack() as stack:
        for name in ("start_monitor", "start_log_monitor", "start_api_server"):
            if hasattr(Node, name):
                stack.enter_context(mock.patch.object(Node, name, lambda node, **given: None))
        yield


@pytest.fixture(scope="module")
def one_process():
    with mock.patch.object(ceilings, "measure", return_value=ceilings.Known(CEILINGS, "")):
        return tilewright.run(NETWORK, **ASKED)


def said(place: Path, name: str) -> bytes:
    """What the system says of a process; nothing if it ended meanwhile."""
    try:
        return (place / name).read_bytes()
    except OSError:
        return b""


def workers() -> list[int]:
    """The processes of this cluster's workers, as the system lists them."""
    ((raylet, *_), *_) = [ray._private.worker._global_node.all_processes["raylet"]]
    return [
        int(place.name)
        for place in Path("/proc").glob("[0-9]*")
        if said(place, "cmdline").startswith(b"ray::MapWorker")
        and f"\nPPid:\t{raylet.process.pid}\n".encode() in said(place, "status")
    ]


@pytest.fixture(scope="module")
def command():
    """A run on a cluster of its own, and the folder for its files."""
    short = Path("/tmp") / f"tw-{os.getpid()}"
    short.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "tilewright", "run", "--on", "ray", "--workers", "1",
         "--data", "drawn", "--images", "100000"],
        env={**os.environ, "TMPDIR": str(short)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process, short
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(short)


def test_ctrl_c_ends_a_command_and_its_cluster(command, cluster):
    """Also what it started, and all files of it. (The tests' own cluster starts meanwhile.)"""
    process, short = command
    for _ in range(1200):
        if list(short.glob("tw-ray-*/session_*/sockets/raylet*")):
            break
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=120)
    assert (process.returncode, out, errors) == (130, "", "tilewright: interrupted\n")
    assert list(short.iterdir()) == []
    left = [said(place, "cmdline") for place in Path("/proc").glob("[0-9]*")]
    assert not [each for each in left if str(short).encode() in each]


def test_each_machine_says_which_tilewright_it_has(cluster):
    ((_, version),) = session.versions()
    assert version == tilewright.__version__


def test_a_worker_that_is_killed_costs_nothing_but_time(cluster, one_process):
    killed = []

    def kill_one(doing, done, of):
        if "images" in doing and not killed:
            killed.append(workers()[0])
            os.kill(killed[0], signal.SIGKILL)

    result = tilewright.run(NETWORK, **ASKED, on="ray", workers=2, progress=kill_one)
    assert killed
    np.testing.assert_array_equal(result.predicted, one_process.predicted)
    assert result.predictions_csv() == one_process.predictions_csv()
    assert result.record.correct == one_process.record.correct
    assert result.record.accuracy == one_process.record.accuracy
    assert sum(each.images for each in result.record.workers) == len(IMAGES)
    assert result.plan == one_process.plan
    assert [each.flop for each in result.record.layers] == [
        each.flop for each in one_process.record.layers
    ]
    assert len(result.rows()) == len(result.record.workers) >= 1
    assert "computing" in str(result) and "worker" in str(result)
    # The cluster was there before, and is not ended.
    assert ray.is_initialized()


def test_a_ladder_is_proven_by_all_and_timed_by_one(cluster):
    told = []
    climbed = tilewright.ladder(
        NETWORK, data=IMAGES, images=4, batch=4, repeats=1, quick=True,
        rungs=["im2col", "onnxruntime"], on="ray", workers=2,
        progress=lambda doing, done, of: told.append(doing),
    )  # fmt: skip
    assert [row.rung for row in climbed.record.rows] == ["im2col", "onnxruntime"]
    assert climbed.passed and all(row.verification.trials for row in climbed.record.rows)
    assert all(row.network.median_seconds > 0 for row in climbed.record.rows)
    assert told[:2] == ["starting the cluster", "starting workers"] and len(told) > 2


def test_candidates_are_timed_by_others_and_plans_by_the_first(cluster, tmp_path):
    subject = Subject(NETWORK, pictures(NETWORK.input.shape, 1), "random weights")
    asked = Asked(subject, "small", ("im2col",), CPU, 2, 2, None, 1, tmp_path / "plan.json")
    told = []
    made = tune_on(asked, 2, None, lambda doing, done, of: told.append(doing), pytest.fail)
    assert [plan.name for plan in made.plans] == ["im2col, own choice"]
    assert made.plans[0].network.median_seconds > 0
    assert asked.kept.read_text().count("\n") > 2  # a line a candidate, after what it is about
    chosen = read(asked.out, NETWORK)
    assert {step.rung for step in chosen.steps} == {"im2col"} and chosen.batch == 2
    assert "starting workers" in told


def test_another_address_is_refused_while_connected(cluster):
    with pytest.raises(TilewrightError, match="connected to a Ray cluster already"):
        tilewright.run(NETWORK, **ASKED, on="ray", address="auto")


def test_a_class_is_judged_by_the_cluster_s_workers_with_a_gpu_each(cluster, tmp_path, monkeypatch):
    """Two judge at the same time, on two devices; one takes its worker with it, and is replaced."""
    store, log = store_with(tmp_path, "anna", "ben"), tmp_path / "log"
    log.touch()
    task = replace(TASK, device=CUDA)
    course = Course(tmp_path, "C", "names", frozenset(), {}, None, {task.name: task})
    words = {"anna": "meet", "ben": "meet and crash"}
    numbers = {
        login: store.hand_in(login, task, {"mine.cl": each.encode()}, True, NOW)
        for login, each in words.items()
    }
    told, keep = set(), store.progress
    monkeypatch.setattr(store, "progress", lambda *given: told.add(given[2]) or keep(*given))
    pool = RayPool(course, store, None, judge=Meeting(log), pause=0.05)
    pool.start()
    try:
        wait(lambda: all_done(store), 120)
    finally:
        pool.stop()
    assert ray.is_initialized()
    found = {login: store.submission(number) for login, number in numbers.items()}
    assert [each.judged for each in found.values()] == [right(), right()]
    assert (found["anna"].attempts, found["ben"].attempts) == (1, 2)
    first, second, again = log.read_text().splitlines()
    assert {first.split()[-1], second.split()[-1]} == {"cuda", "cuda:1"}
    assert again.startswith("meet and crash on cuda")
    assert told == {"meeting"}
