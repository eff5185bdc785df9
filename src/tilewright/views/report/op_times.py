"""Tables that the course asks for: op times and correctness by number of images, run times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.results.ladder import LadderRecord, RungRecord
from tilewright.results.run import RunRecord
from tilewright.views import units
from tilewright.views.report.blocks import NONE, Cell, Number, Table, number

OPERATIONS = ("conv", "network")  # kinds of layers with op times


@dataclass(frozen=True)
class Measured:
    """At one number of images: the share of right answers, seconds of operations and of all."""

    rung: str
    images: int
    correct: float | None
    operations: Mapping[str, float]
    forward: float | None


def of_run(run: RunRecord) -> Measured:
    operations = {
        each.name: each.seconds
        for each in run.layers
        if each.kind in OPERATIONS and each.within is None
    }
    return Measured(run.label, run.images, run.accuracy, operations, run.forward_seconds)


def of_ladder(ladder: LadderRecord, row: RungRecord) -> Iterator[Measured]:
    """Right answers are counted at several sizes, times are of one."""
    right = {each.images: each.share for each in row.correctness}
    for images in dict.fromkeys((*right, ladder.images)):
        operations, forward = {}, None
        if images == ladder.images and row.network is not None:
            operations = {name: time.median_seconds for name, time in row.operations.items()}
            forward = row.network.median_seconds
        yield Measured(row.rung, images, right.get(images), operations, forward)


def op_times(title: str, found: Sequence[Measured]) -> Table:
    """A row for each rung and number of images; of two with the same the first counts."""
    kept: dict[tuple[str, int], Measured] = {}
    for each in found:
        kept.setdefault((each.rung, each.images), each)
    rungs = list(dict.fromkeys(each.rung for each in found))
    names = list(dict.fromkeys(name for each in found for name in each.operations))
    rows: list[Sequence[Cell]] = [
        (
            each.rung, Number(units.count(each.images), each.images), share(each.correct),
            *(milliseconds(each.operations.get(name)) for name in names),
            milliseconds(each.forward),
        )
        for each in sorted(kept.values(), key=lambda each: (rungs.index(each.rung), each.images))
    ]  # fmt: skip
    heads = (*(f">Op Time {name}, ms" for name in names), ">forward, ms")
    columns = ("rung", ">images", ">correctness", *heads)
    return Table(f"{title}: correctness and op times", columns, rows)


def outputs(caption: str, runs: Sequence[RunRecord]) -> Table:
    """What a run printed, and what it took."""
    rows: list[Sequence[Cell]] = []
    for run in runs:
        used: list[Cell] = [NONE] * 4
        if run.usage is not None:
            taken = run.usage
            seconds = (taken.elapsed_seconds, taken.user_seconds, taken.system_seconds)
            used = [Number(units.seconds(each), each) for each in seconds]
            used.append(Number(units.share(taken.cpu_share), taken.cpu_share))
        rows.append(
            (
                run.network, run.device, run.label, Number(units.count(run.images), run.images),
                share(run.accuracy),
                Number(units.seconds(run.forward_seconds), run.forward_seconds), *used,
                Number(units.size(run.peak_memory_bytes), run.peak_memory_bytes),
            )
        )  # fmt: skip
    return Table(
        caption,
        (
            "network", "device", "rung", ">images", ">correctness", ">forward", ">real", ">user",
            ">system", ">CPU", ">largest resident set",
        ),
        rows,
    )  # fmt: skip


def share(value: float | None) -> Cell:
    return NONE if value is None else Number(f"{value:.4f}", value)


def milliseconds(seconds: float | None) -> Cell:
    return number(units.milliseconds(seconds or 0.0), seconds)
