"""The ladder's table and JSON, on samples made by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.results.made import ENVIRONMENT
from tilewright.climb import Ladder, Row, Subject
from tilewright.contest import Measured
from tilewright.data.dataset import Dataset
from tilewright.fuse.cpu.grouped import PlainGroup
from tilewright.fuse.cpu.schedule import by_images
from tilewright.fuse.cpu.tiles import Target
from tilewright.measure.conditions import Conditions
from tilewright.measure.samples import Sample
from tilewright.model import zoo
from tilewright.results.climbed import record
from tilewright.results.document import plain
from tilewright.rungs import rungs
from tilewright.runtime.device import CPU
from tilewright.truth.verify import Verdict
from tilewright.views import ladder as view
from tilewright.views.formats import document
from tilewright.views.table import Table

NETWORK = zoo.network("cifar10")
FLOP, INSIDE = NETWORK.flops, sum(stage.inside_flops for stage in NETWORK.stages)
QUIET = Conditions((1.0, 1.0), 0.0, 0.0, 0.0)
VERDICT = Verdict(seed=7, trials=300, outputs=12_345, worst=0.614, fault=None)
ROUNDS = (1.0, 1.02, 0.99, 1.01, 0.98, 1.0, 1.03, 1.0, 0.99)
# The time of a round of each, if nothing disturbed it.
SECONDS = {
    "serial": 1.0, "threads": 0.5, "im2col": 0.1, "fused": 0.0125, "onnxruntime": 0.025,
    "torch": 0.05,
}  # fmt: skip


def row(rung, rounds=ROUNDS, **more):
    sample = Sample(tuple(SECONDS[rung.name] * each for each in rounds))
    convolutions = {stage.name: sample for stage in NETWORK.stages if stage.kind == "conv"}
    found = Measured(sample, convolutions, "", None, None, 0, np.zeros(100, np.int64))
    return Row(rung, verdict=VERDICT, measured=replace(found, **more))


def made(rounds=ROUNDS, **changes):
    rows = [row(rung, rounds) for rung in rungs(CPU)]
    return replace(Ladder("a CPU", 100 * FLOP / 0.0125, rows, 1, QUIET), **changes)


def kept(ladder, labels=None):
    pixels = np.zeros((100, 3, 32, 32), np.uint8)
    subject = Subject(NETWORK, Dataset("d", pixels, labels, "by hand"), "random weights")
    return record(ladder, subject, CPU, 10, None, ENVIRONMENT)


def printed(ladder, labels=None):
    from rich.console import Console

    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    for part in view.report(kept(ladder, labels)):
        console.print(part)
    return console.export_text()


def cells(text, rung, place):
    """A line of one of the two tables."""
    return [line for line in text.splitlines() if line.startswith(rung)][place].split()


def test_a_rung_is_compared_with_the_one_it_changes():
    text = printed(made())
    assert cells(text, "threads", 1)[4:7] == ["2.00x", "0.00", "serial"]
    assert cells(text, "fused", 1)[4:7] == ["8.00x", "0.00", "im2col"]
    assert max(map(len, text.splitlines())) <= 100


def test_the_share_of_the_peak_is_of_what_was_computed():
    """GFLOP/s count taps outside the image; 102 % of the peak were printed, 87 % were true."""
    text = printed(made())
    assert INSIDE < 0.9 * FLOP
    share = f"{100 * INSIDE / FLOP:.1f}"
    assert cells(text, "fused", 1)[3] == share
    assert float(cells(text, "im2col", 1)[3]) == pytest.approx(12.5)  # it multiplies the zeros
    assert "% of peak only those that a rung computes" in text


def test_libraries_have_a_share_of_the_peak():
    text = printed(made())
    assert cells(text, "onnxruntime", 1)[3] == "50.0"
    assert cells(text, "torch", 1)[3] == "25.0"


def test_the_share_of_a_library():
    text = printed(made())
    assert cells(text, "onnxruntime", 1)[-1] == "1.00x"  # of itself, with no doubt
    assert cells(text, "fused", 1)[-1] == "2.00x"
    assert "onnxruntime" in text[text.index("Speeds") :].splitlines()[2]
    ladder = made()
    ladder.rows[3] = row(ladder.rows[3].rung, tuple(2 * each for each in reversed(ROUNDS)))
    assert cells(printed(ladder), "fused", 1)[-1] == "≈1.00x"


@pytest.mark.parametrize("precision", ["fp16", "tf32", "tf32x3"])
def test_a_library_is_compared_with_in_its_own_precision(precision):
    ladder = made()
    rung = replace(ladder.rows[3].rung, name=f"fused {precision}")
    ladder.rows[3] = replace(ladder.rows[3], rung=rung)
    assert cells(printed(ladder), "fused", 1)[-1] == "-"
    assert kept(ladder).rows[3].precision == precision


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("net", ["cifar10", "ece408"])
def test_what_counts_is_what_the_fused_kernel_executes(net, lanes):
    network = zoo.network(net)
    plan = by_images(network, Target(lanes, 16 if lanes < 16 else 32))
    groups = [group for group in plan.groups if not isinstance(group, PlainGroup)]
    stages = {stage.name for group in groups for stage in group.stages}
    inside = sum(
        stage.inside_flops
        for stage in network.stages
        if stage.name in stages and stage.kind in ("conv", "fc")
    )
    assert sum(group.executed_flops for group in groups) == inside


def test_the_proof_is_the_worst_error_as_a_share_of_its_bound():
    assert cells(printed(made()), "fused", 0)[1] == "0.61"
    ladder = made()
    ladder.rows[0] = replace(ladder.rows[0], verdict=replace(VERDICT, worst=0.9959))
    assert cells(printed(ladder), "serial", 0)[1] == "0.99"
    (first, *_) = kept(made()).rows
    assert plain(first.verification) == {
        "passed": True, "seed": 7, "trials": 300, "outputs": 12_345, "worst": 0.614, "fault": None,
        "proven": None,
    }  # fmt: skip


def test_a_proof_from_before_is_of_its_day():
    ladder = made()
    assert "--prove" not in printed(ladder)
    ladder.rows[0] = replace(ladder.rows[0], verdict=replace(VERDICT, proven="2026-11-15"))
    assert kept(ladder).rows[0].verification.proven == "2026-11-15"
    said = " ".join(printed(ladder).split())
    assert "proven 2026-11-15 on this machine, and nothing has changed since: serial (" in said
    before = replace(VERDICT, proven="2026-11-15")
    ladder.rows[:] = [replace(row, verdict=row.verdict and before) for row in ladder.rows]
    assert "nothing has changed since: every rung (" in " ".join(printed(ladder).split())


def test_what_cannot_be_told_apart_is_marked():
    near = tuple(reversed([each * 2 * 0.99 for each in ROUNDS]))  # threads, nearly like serial
    ladder = made()
    ladder.rows[1] = row(ladder.rows[1].rung, near)
    text = printed(ladder)
    assert cells(text, "threads", 1)[4].startswith("≈1.0")
    assert "≈" not in cells(text, "fused", 1)[4]
    against = kept(ladder).rows[1].against
    assert against.rung == "serial"
    assert against.differs is False
    low, high = against.interval
    assert low <= 1 <= high


def test_a_busy_machine_can_tell_less():
    """What wants all cores may have had less of them, and what wants one core all of it."""
    text = printed(made(doubt=0.6))
    assert cells(text, "threads", 1)[4] == "≈2.00x"
    assert cells(text, "im2col", 1)[4] == "5.00x"
    assert "ratios are uncertain by as much" in text
    assert "uncertain" not in printed(made())
    threads = kept(made(doubt=0.6)).rows[1].against
    assert threads.interval == pytest.approx((0.8, 5.0))
    assert threads.differs is False


def test_few_rounds_tell_nothing():
    text = printed(made(ROUNDS[:3]))
    assert "fewer than 6 rounds" in text
    assert cells(text, "threads", 0)[-2] == "-"
    assert cells(text, "threads", 1)[4] == "2.00x"
    (first, *_) = kept(made(ROUNDS[:3])).rows
    assert first.network.interval_seconds is None


def test_half_the_interval_stands_beside_the_median():
    text = printed(made())
    # The second and the eighth of nine.
    assert cells(text, "serial", 0)[-2:] == ["1.50", "-"]
    (first, *_) = kept(made()).rows
    assert first.network.interval_seconds == (0.99, 1.02)


def test_noise_and_a_busy_machine_are_said():
    wild = (1.0, 2.0, 0.5, 1.5, 1.0, 0.7, 1.8, 1.1, 0.6)
    busy = replace(QUIET, others=0.35)
    text = printed(made(wild, conditions=busy, notices=("the ceilings may be too low",)))
    assert "not certain to 5 % after 9 rounds: serial, threads" in text
    assert "the machine was busy: 35 % of CPU time was others'" in text
    assert "the ceilings may be too low" in text
    assert "busy" not in printed(made())
    assert "not certain" not in printed(made())


def test_copies_and_correctness_fit_too():
    ladder = made()
    ladder.rows[:] = [
        replace(each, measured=replace(each.measured, copies=each.network, copied_bytes=10**7))
        for each in ladder.rows
    ]
    text = printed(ladder, np.zeros(100, np.int64))
    assert max(map(len, text.splitlines())) <= 100
    assert "1.0000" in text


def on_a_gpu(each, device, copies=0.01):
    """A row of a GPU: so long it computed, so long it copied."""
    samples = (
        Sample(tuple(part * x for x in ROUNDS)) for part in (device, copies, device + copies)
    )
    computing, copying, total = samples
    made = replace(each.measured, network=total, device=computing, copies=copying)
    return replace(each, measured=made)


def test_ranks_and_ratios_go_by_the_time_on_the_device():
    """One copy of 2.5 ms made rungs of 0.4 and 3.2 ms look alike."""
    first, second, *_ = made().rows
    second = replace(second, rung=replace(second.rung, against=first.rung.name))
    ladder = made(rows=[on_a_gpu(first, 0.0032), on_a_gpu(second, 0.0004)])
    text = printed(ladder)
    assert cells(text, "serial", 0)[5:10] == ["3.20", "1.50", "10.0", "13.2", "1.50"]
    assert cells(text, "threads", 1)[4] == "8.00x"
    assert "time on the device, 100 images" in text.lower()
    assert cells(text, "threads", 2)[-1] == "fastest"
    assert cells(text, "serial", 2)[-1] != "fastest"


def test_what_is_certain_on_the_device_is_certain_whatever_the_host_does():
    wild = (1.0, 2.0, 0.5, 1.5, 1.0, 0.7, 1.8, 1.1, 0.6)
    each = on_a_gpu(made().rows[0], 0.001)
    total = Sample(tuple(0.01 * x for x in wild))
    ladder = made(rows=[replace(each, measured=replace(each.measured, network=total))])
    text = printed(ladder)
    assert "not certain" not in text
    assert cells(text, "serial", 0)[6] == "1.50"
    assert float(cells(text, "serial", 0)[9]) > 5


def test_every_rung_may_be_compared_with_one():
    text = printed(made(against="serial"))
    assert cells(text, "fused", 1)[4:7] == ["80.0x", "0.00", "serial"]
    assert cells(text, "serial", 1)[4] == "-"


def test_all_memory_plans_stand_beside_each_other_layer_by_layer():
    each = made().rows[0]
    layers = {("conv1",): Sample((0.001,) * 9), ("pool1",): Sample((0.0005,) * 9)}
    plans = [
        replace(each, memory=plan, measured=replace(each.measured, layers=layers, page_faults=7))
        for plan in ("resident", "managed")
    ]
    kept_ = record(
        made(rows=plans),
        Subject(NETWORK, Dataset("d", np.zeros((100, 3, 32, 32), np.uint8), None, "x"), "r"),
        CPU, 10, "all", ENVIRONMENT,
    )  # fmt: skip
    tables = [part for part in view.tables(kept_) if isinstance(part, Table)]
    (matrix,) = [made for made in tables if made.title.startswith("Layer")]
    assert [column.name for column in matrix.columns] == [
        "layer", "serial resident, ms", "serial managed, ms",
    ]  # fmt: skip
    rows = {row[0]: row[1] for row in matrix.rows}
    assert rows["conv1"] == rows["all conv"] == "1.00"
    assert rows["total"] == "1,000"
    (faults,) = [made for made in tables if made.title.startswith("Page faults")]
    assert faults.rows == [("page faults", "7", "7")]
    whole = json.loads(document([matrix, faults], "json"))["tables"]
    assert whole[0]["rows"][0] == {
        "layer": "conv1", "serial resident (s)": 0.001, "serial managed (s)": 0.001,
    }  # fmt: skip
    assert whole[1]["rows"][0]["serial resident"] == 7


def test_what_is_fused_stands_by_its_first_layer():
    each, time = made().rows[0], Sample((0.001,) * 9)
    apart = {(name,): time for name in ("conv1", "relu1", "pool1", "fc")}
    fused = {("conv1", "relu1"): time, ("fc",): time}
    rows = [
        replace(each, memory=plan, measured=replace(each.measured, layers=layers))
        for plan, layers in (("resident", fused), ("managed", apart))
    ]
    kept_ = record(
        made(rows=rows),
        Subject(NETWORK, Dataset("d", np.zeros((100, 3, 32, 32), np.uint8), None, "x"), "r"),
        CPU, 10, "all", ENVIRONMENT,
    )  # fmt: skip
    (matrix,) = (
        part for part in view.tables(kept_)
        if isinstance(part, Table) and part.title.startswith("Layer")
    )  # fmt: skip
    names = [row[0] for row in matrix.rows]
    assert names[:5] == ["conv1", "conv1..relu1", "relu1", "pool1", "fc"]
