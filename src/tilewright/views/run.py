"""A run as the tables people read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray
from rich.console import RenderableType

from tilewright.measure.samples import Sample
from tilewright.results.record import Verification
from tilewright.results.run import RunRecord
from tilewright.views import colours, meaning, units
from tilewright.views.pictures import Pictures
from tilewright.views.table import Column, Listed, facts, table

if TYPE_CHECKING:
    from tilewright.data.dataset import Dataset

# Of the forward phase; less is what two clocks differ by.
OVERLAP_SHOWN = 0.001


class Predictions(Protocol):
    """What a run gave, image by image."""

    @property
    def dataset(self) -> Dataset: ...
    @property
    def predicted(self) -> NDArray[np.int64]: ...
    @property
    def outputs(self) -> NDArray[np.float32]: ...


def pictures(result: Predictions, count: int) -> Iterator[RenderableType]:
    """Some images with what was predicted."""
    yield ""
    yield Pictures(result.dataset, result.predicted, _flat(result), count)


def _flat(result: Predictions) -> NDArray[np.float32]:
    """A row an image, whatever shape the network gives."""
    return result.outputs.reshape(len(result.predicted), -1)


def report(run: RunRecord) -> Iterator[RenderableType]:
    """Everything a person wants to know of a run, from top to bottom."""
    images = units.plural(run.images, "image")
    yield (
        f"{run.network} over {images}, "
        f"{_batches(run)}, rung {run.label} on {run.device} "
        f"({run.device_name}){_memory(run)}{_spread(run)}"
    )
    yield f"{run.data}\n"
    yield _phases(run)
    yield ""
    if run.workers:
        yield _workers(run)
        yield ""
    yield _layers(run)
    yield ""
    yield from _summary(run)


def _batches(run: RunRecord) -> str:
    batch = min(run.batch, run.images)
    return "one by one" if batch == 1 else f"{units.count(batch)} at a time"


def _spread(run: RunRecord) -> str:
    working = sum(not each.lost for each in run.workers)
    return f", {units.plural(working, 'worker')}" if working else ""


def _memory(run: RunRecord) -> str:
    return "" if run.plan.memory == "host" else f", memory {run.plan.memory}"


def _phases(run: RunRecord) -> RenderableType:
    total = run.total_seconds
    rows = table("Phases", "phase", ">time", "%share")
    between = total
    for event in run.phases:
        rows.add_row(event.name, units.seconds(event.seconds), units.share(event.seconds / total))
        between -= event.seconds
    rows.add_row("between phases", units.seconds(between), units.share(between / total))
    rows.add_section()
    rows.add_row("total", units.seconds(total), units.share(1))
    return rows


def _workers(run: RunRecord) -> RenderableType:
    several = len({each.device_name for each in run.workers if each.parts}) > 1
    lost = any(each.lost for each in run.workers)
    rows = table("Workers", "worker", *(["device"] if several else []), ">images", ">starting",
                 ">loading", ">computing", ">waiting", *(["note"] if lost else []))  # fmt: skip
    for each in run.workers:
        spent = (each.starting_seconds, each.loading_seconds, each.computing_seconds,
                 each.waiting_seconds)  # fmt: skip
        rows.add_row(
            each.name,
            *([each.device_name] if several else []),
            units.count(each.images),
            *map(units.seconds, spent),
            *(["lost, replaced" if each.lost else ""] if lost else []),
        )
    return rows


def _layers(run: RunRecord) -> RenderableType:
    forward = run.forward_seconds
    rows = table("Forward, layer by layer", "layer", Column("kind", spare=1), ">time", "%share",
                 ">GFLOP/s", *(["what holds it up"] if run.peak_flops else ()))  # fmt: skip
    layers = run.layers
    for layer in layers:
        rate = _rate(layer.flop, layer.seconds) if layer.flop and layer.seconds else "-"
        rows.add_row(
            layer.name,
            layer.kind,
            f"in {layer.within}" if layer.within else _time(layer.seconds),
            units.share(layer.seconds / forward) if layer.seconds else "-",
            rate,
            *([colours.limit(layer.limit)] if run.peak_flops else ()),
        )  # fmt: skip
    computed = sum(layer.seconds for layer in layers)
    rows.add_section()
    rows.add_row("sum of layers", "", units.seconds(computed), units.share(computed / forward), "")
    for name, moved, seconds in _copies(run):
        rows.add_row(
            name, units.size(moved), units.seconds(seconds), units.share(seconds / forward), ""
        )
    overlap, rest = run.overlap_seconds, run.remainder_seconds
    if overlap > OVERLAP_SHOWN * forward:
        rows.add_row(
            "at the same time",
            "",
            units.seconds(-overlap),
            units.share(-overlap / forward),
            "",
        )
    rows.add_row("remainder", "", units.seconds(rest), units.share(rest / forward), "")
    overall = _rate(sum(layer.flop for layer in run.layers), forward)
    whole = "forward (all workers)" if run.workers else "forward (wall)"
    rows.add_row(whole, "", units.seconds(forward), units.share(1), overall)
    return rows


def _copies(run: RunRecord) -> list[tuple[str, int, float]]:
    """By direction; records of before have them together."""
    if run.copies:
        return [(each.direction, each.bytes, each.seconds) for each in run.copies]
    return [("copies", run.copied_bytes, run.copy_seconds)] if run.copy_seconds else []


def _rate(flop: int, seconds: float) -> str:
    """For a column in GFLOP/s."""
    return units.fixed(flop / seconds / 1e9, 1)


def _time(seconds: float) -> str:
    return units.seconds(seconds) if seconds else "-"


def _summary(run: RunRecord) -> Iterator[RenderableType]:
    layers = run.layers
    kinds: dict[str, float] = {}
    for layer in layers:
        kinds[layer.kind] = kinds.get(layer.kind, 0.0) + layer.seconds
    by_kind = sorted(((s, kind) for kind, s in kinds.items() if s), reverse=True)
    forward = run.forward_seconds
    parts = [f"{kind} {units.seconds(s)} ({units.share(s / forward)})" for s, kind in by_kind]
    ops = [(x.name, units.seconds(x.seconds)) for x in layers if x.kind == "conv"]
    images = run.images
    grid = facts("Summary")
    numbers = [(kind, units.seconds(s)) for s, kind in by_kind]
    grid.add_row("By kind", Listed(", ".join(parts), numbers))
    if ops:
        grid.add_row("Op time", Listed(", ".join(map(" ".join, ops)), ops))
    else:
        grid.add_row("Op time", "- (the convolutions are not computed separately)")
    if run.proof is not None:
        grid.add_row("Proof", proof(run.proof))
    if run.correct is None or run.accuracy is None:
        grid.add_row("Correctness", "- (the data has no labels)")
    else:
        share, right, of = (
            units.fixed(run.accuracy, 4),
            units.count(run.correct),
            units.count(images),
        )
        numbers = [("share", share), ("right", right), ("images", of)]
        grid.add_row("Correctness", Listed(f"{share} ({right} of {of})", numbers))
    rate, each = units.count(run.images_per_second), units.seconds(1 / run.images_per_second)
    numbers = [("images/s", rate), ("an image", each)]
    grid.add_row("Speed", Listed(f"{rate} images/s, {each} an image", numbers))
    if run.forward_samples:
        sample = Sample(run.forward_samples)
        many = f"median of {len(sample.seconds)} forward passes, {sample.verdict}"
        median = units.seconds(sample.median)
        grid.add_row("Repeats", Listed(f"{median}, {many}", [("median", median)]))
    grid.add_row("Peak memory", units.size(run.peak_memory_bytes))
    if run.usage is not None:
        used = run.usage
        numbers = [
            ("user", units.seconds(used.user_seconds)),
            ("system", units.seconds(used.system_seconds)),
            ("elapsed", units.seconds(used.elapsed_seconds)),
            ("CPU", units.Quantity(f"{100 * used.cpu_share:.0f} %", 100 * used.cpu_share, "%")),
            ("page faults", units.count(used.page_faults)),
        ]
        text = ", ".join(f"{number} {name}" for name, number in numbers)
        grid.add_row("Process", Listed(text, numbers))
    yield grid
    if words := " ".join(meaning.sentences(run)):
        yield f"\n{words}"


def proof(found: Verification) -> str:
    assert found.worst is not None  # a run goes no further than a fault
    numbers = [("trials", units.count(found.trials)), ("worst", units.of_bound(found.worst))]
    text = (
        f"{units.plural(found.trials, 'trial')}, worst {units.of_bound(found.worst)} of its bound"
    )
    return Listed(text, numbers)
