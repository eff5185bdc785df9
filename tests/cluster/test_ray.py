"""A data set through a Ray cluster of this machine's own: the answers of one process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tests.classroom.judges import Obedient
from tests.classroom.made import TASK, right, store_with
from tests.classroom.test_workers import all_done, hand_in, wait
from tests.cluster.made import IMAGES, LABELS, NETWORK
from tilewright.classroom.course import Course
from tilewright.cluster.pool import RayPool
from tilewright.errors import TilewrightError

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'tilewright[cluster]'")

# One worker of the tests has the cluster: each would start its own.
pytestmark = pytest.mark.xdist_group("ray")
ASKED = {"data": (IMAGES, LABELS), "batch": 8, "rung": "im2col"}


@pytest.fixture(scope="module")
def cluster():
    from tilewright.cluster.session import connected

    with connected(None, processors=2):
        yield


@pytest.fixture(scope="module")
def one_process():
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
        NETWORK, data=IMAGES, images=4, batch=4, repeats=1, quick=True, rungs=["im2col", "fused"],
        on="ray", workers=2, progress=lambda doing, done, of: told.append(doing),
    )  # fmt: skip
    assert [row.rung for row in climbed.record.rows] == [
        "im2col", "fused", "fused fp32-winograd", "fused fp32-winograd4",
    ]  # fmt: skip
    assert climbed.passed and all(row.verification.trials for row in climbed.record.rows)
    assert climbed.record.rows[1].against.rung == "im2col"
    assert all(row.network.median_seconds > 0 for row in climbed.record.rows)
    assert told[:2] == ["starting the cluster", "starting workers"] and len(told) > 2


def test_what_is_wrong_on_a_worker_is_one_line_here(cluster, tmp_path):
    for index, label in enumerate((1, 9)):
        labels = np.full(16, label)
        np.savez(tmp_path / f"{index}.npz", images=IMAGES[:16], labels=labels)
    words = r"images 16 to 31: .*1\.npz: label 9 of image 0 is out of range"
    with pytest.raises(TilewrightError, match=words):
        tilewright.run(NETWORK, data=tmp_path, batch=16, rung="im2col", on="ray", workers=1)


def test_another_address_is_refused_while_connected(cluster):
    with pytest.raises(TilewrightError, match="connected to a Ray cluster already"):
        tilewright.run(NETWORK, **ASKED, on="ray", address="auto")


def test_ctrl_c_ends_the_command_and_its_cluster(tmp_path):
    """Also what it started, and all files of it."""
    command = [sys.executable, "-m", "tilewright", "run", "--on", "ray", "--workers", "1",
               "--data", "drawn", "--images", "100000"]  # fmt: skip
    short = Path("/tmp") / f"tw-{os.getpid()}"
    short.mkdir()
    process = subprocess.Popen(
        command, env={**os.environ, "TMPDIR": str(short)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        for _ in range(1200):
            if list(short.glob("tw-ray-*/session_*/sockets/raylet*")):
                break
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=120)
        assert (process.returncode, out, errors) == (130, "", "tilewright: interrupted\n")
        assert list(short.iterdir()) == []
        short.rmdir()
        left = [said(place, "cmdline") for place in Path("/proc").glob("[0-9]*")]
        assert not [each for each in left if str(short).encode() in each]
    finally:
        process.kill()


def test_a_class_is_judged_by_the_cluster_s_workers(cluster, tmp_path, monkeypatch):
    """With the judges and tests of one machine: whatever becomes of a worker, all is judged."""
    store, log = store_with(tmp_path, "anna", "ben"), tmp_path / "log"
    log.touch()
    course = Course(tmp_path, "C", "names", frozenset(), {}, None, {TASK.name: TASK})
    told, keep = set(), store.progress
    monkeypatch.setattr(store, "progress", lambda *given: told.add(given[2]) or keep(*given))
    given = ("right 0.5", "once", "wrong bias")
    numbers = {words: hand_in(store, words) for words in given}
    pool = RayPool(course, store, None, judge=Obedient(log), pause=0.05)
    pool.start()
    try:
        wait(lambda: all_done(store), 120)
        assert pool.alive() == 1
    finally:
        pool.stop()
    assert ray.is_initialized()
    found = {words: store.submission(number) for words, number in numbers.items()}
    assert found["right 0.5"].judged == right(0.5)
    assert found["wrong bias"].judged.reason == "bias"
    assert (found["once"].judged.outcome, found["once"].attempts) == ("right", 2)
    lines = log.read_text().splitlines()
    assert sorted(lines) == ["once on opencl", "once on opencl", "right 0.5 on opencl",
                             "wrong bias on opencl"]  # fmt: skip
    assert told == {"compiling"}
