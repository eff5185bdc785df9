"""Kernels ranked among rungs on PoCL: who cheats or crashes is refused, and the others go on."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from weakref import WeakSet

import jsonschema
import numpy as np
import pytest

from tests.judge.changed import changed
from tilewright import cli
from tilewright.data.dataset import Dataset
from tilewright.errors import TilewrightError
from tilewright.files import history_file
from tilewright.judge import WorkerStopped, arena, process, sandbox
from tilewright.judge import bench as module
from tilewright.judge.allowance import Allowance
from tilewright.judge.arena import Entry, Row
from tilewright.judge.bench import Bench, bench
from tilewright.judge.connection import Connection
from tilewright.judge.office import Office
from tilewright.measure.conditions import CpuTime
from tilewright.measure.samples import Sample
from tilewright.model.layers import Convolution, Pixels
from tilewright.model.network import Network
from tilewright.precision import TF32
from tilewright.profiling.result import Ceilings
from tilewright.results.document import text
from tilewright.results.history import History
from tilewright.results.schema import schema
from tilewright.rungs import choose
from tilewright.rungs.rung import Rung
from tilewright.runtime.device import OPENCL
from tilewright.runtime.opencl import missing
from tilewright.truth.trials import random_parameters
from tilewright.truth.verify import Verdict

pytestmark = [
    pytest.mark.skipif(missing(OPENCL) is not None, reason="needs PoCL"),
    pytest.mark.skipif(bool(sandbox.protection().missing), reason="needs Landlock and seccomp"),
    pytest.mark.usefixtures("quick_workers", "not_optimised"),
]
BARE = Network("small", Pixels((2, 7, 6)), (Convolution(3, 3, padding=1),))
NETWORK = BARE.with_parameters(random_parameters(BARE, np.random.default_rng(1)))
PIXELS = np.random.default_rng(2).integers(0, 256, (5, 2, 7, 6), np.uint8)
LABELS = np.zeros(5, np.int64)
KNOWN = Ceilings("fast", flops=1e15, bytes=1e15, processors=1, date="2026-11-15")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena, "ceilings", lambda *given, **named: (KNOWN, None))
    monkeypatch.setattr("time.sleep", lambda seconds: None)


def passed(rung: Rung) -> Verdict:
    return Verdict(1, 1, 1, 0.5, None)


def judged(*rungs: Rung, batch: int = 4) -> Bench:
    entries = [Entry(rung, OPENCL, judged=True) for rung in rungs]
    dataset = Dataset("drawn", PIXELS, LABELS, "drawn")
    return bench(entries, NETWORK, dataset, OPENCL, batch, rounds=2, proof=passed)


def test_kernels_that_cheat_or_crash_are_refused_and_the_others_ranked():
    found = judged(
        choose(OPENCL, "direct"),
        changed("lazy", "float sum = bias[filter];", "if (image > 0) return; float sum = bias[0];"),
        changed("crash", "float sum = bias[filter];", "float sum = bias[1L << 44];"),
        changed("error", "float sum", "float float sum"),
    )
    rows = {row.entry.rung.name: row for row in found.rows}
    honest = rows["direct"]
    assert honest.refused is None and found.rank(honest) == 1 and found.ranked() == [honest]
    assert set(honest.warm) == set(honest.cold) == {"conv"}
    assert len(honest.warm["conv"].seconds) == len(set(honest.fingerprints["conv"])) == 2
    assert set(honest.correct) == {5}
    reasons = {name: str(row.refused) for name, row in rows.items()}
    assert "outputs were not there when the clock stopped" in reasons["lazy"]
    assert "while running direct_conv on conv: it was killed by SIGSEGV" in reasons["crash"]
    assert "compile" in reasons["error"]


def test_workers_of_proofs_are_gone_when_times_are_taken(monkeypatch: pytest.MonkeyPatch):
    class Timing(Exception): ...

    def timing(*given: object) -> None:
        raise Timing

    alive: WeakSet[Connection] = WeakSet()
    begin = Connection.__init__

    def counted(self: Connection, *given: object, **more: object) -> None:
        alive.add(self)
        begin(self, *given, **more)

    monkeypatch.setattr(Connection, "__init__", counted)
    monkeypatch.setattr(module, "Arena", timing)
    with pytest.raises(Timing):
        judged(choose(OPENCL, "direct"), changed("crash", "bias[filter];", "bias[1L << 44];"))
    assert not alive


def test_more_kernels_than_can_take_turns_are_refused():
    with pytest.raises(TilewrightError, match=r"33 kernels .* kernel grade judges any number"):
        judged(*[choose(OPENCL, "direct")] * 33)


def test_a_wrong_proof_is_the_reason():
    rung = changed("forgetful", "float sum = bias[filter];", "float sum = 0 * bias[filter];")
    dataset = Dataset("drawn", PIXELS, None, "drawn")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "tilewright.truth.quick.SHAPES", (((3, 11, 13), Convolution(5, 3, padding=1)),)
        )
        found = bench([Entry(rung, OPENCL, judged=True)], NETWORK, dataset, OPENCL, 4, rounds=1)
    (row,) = found.rows
    assert str(row.refused).startswith("wrong: conv") and found.ranked() == []


def test_a_worker_stands_still_unless_it_is_waited_for():
    office = Office(OPENCL, Allowance())
    office.connection.hush()
    status = Path(f"/proc/{office.connection.process.pid}/stat").read_text()
    assert status.rpartition(")")[2].split()[0] == "T"


def test_what_workers_use_is_not_others(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(arena, "cpu_seconds", {7: 3.0, 8: 4.0}.__getitem__)
    monkeypatch.setattr(arena, "read_times", lambda: CpuTime(100.0, 50.0, 0.0, own=1.0))
    found = arena.Arena(NETWORK, OPENCL, 4, Allowance(), trust=False)
    found.workers = [7, 8]
    assert found.cpu_time() == CpuTime(100.0, 50.0, 0.0, own=8.0)
    assert process.cpu_seconds(os.getpid()) > 0 and process.cpu_seconds(-1) == 0


def test_a_worker_that_does_not_stand_still_is_stopped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tilewright.judge.connection.HUSH_SECONDS", 0.0)
    office = Office(OPENCL, Allowance())
    os.killpg(office.connection.process.pid, signal.SIGCONT)
    monkeypatch.setattr(office.connection, "_let_run", lambda run: None)
    with pytest.raises(WorkerStopped, match="it does not stand still"):
        office.connection.hush()


def test_nothing_wins_in_a_class_it_does_not_belong_to():
    def row(name: str, seconds: float, **changes: object) -> Row:
        rung = replace(choose(OPENCL, "direct"), name=name, **changes)
        return Row(Entry(rung, OPENCL), warm={"conv": Sample((seconds,))})

    rows = [row("a", 3), row("b", 2), row("tf", 1, precision=TF32), row("lib", 0.5, vendor=True)]
    found = Bench(rows, "", 1, KNOWN, module.Watch().conditions(), (), 1)
    assert [found.rank(each) for each in rows] == [2, 1, 1, None]


def test_the_command_prints_tables_and_json(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    (tmp_path / "bad.cl").write_text("no header")
    arguments = [
        *("kernel", "bench", "direct", str(tmp_path / "bad.cl"), "--rungs", "direct"),
        *("--net", str(_saved(tmp_path)), "--batch", "3", "--repeats", "1"),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tilewright.truth.quick.SHAPES", ())
        patch.setattr("tilewright.truth.quick.quick", lambda *given: iter(()))
        patch.setattr(module, "quick", lambda *given: iter(()))
        patch.setattr(module, "library", lambda device: None)
        assert cli.main([*arguments, "--json", str(tmp_path / "out.json")]) == 1
    said = capsys.readouterr().out
    assert "rank" in said and "direct" in said and "bad.cl" in said
    document = json.loads((tmp_path / "out.json").read_text())
    (kernel,) = document["kernels"]
    assert kernel["rank"] == 1 and kernel["refused"] is None
    assert len(kernel["convolutions"]["conv"]["warm_seconds"]) == 1
    assert all(len(line) <= 100 for line in said.splitlines())
    jsonschema.validate(document, json.loads(schema("bench")))
    kept = History(history_file()).read(1)
    assert json.loads(text(kept)) == document
    assert kept.headline == "direct: 1 of 1"
    assert cli.main(["history", "show", "1"]) == 0
    again = capsys.readouterr().out.split("\n\n", 1)[1]
    assert again == said  # the table that the command printed


def _saved(folder: Path) -> Path:
    path = folder / "small.json"
    description = {
        "name": "small",
        "input": {"shape": [2, 7, 6]},
        "layers": [{"type": "convolution", "filters": 3, "kernel": 3, "padding": 1}],
    }
    path.write_text(json.dumps(description))
    return path
