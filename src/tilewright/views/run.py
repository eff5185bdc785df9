"""A run's trace as the tables people read and the JSON programs read."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import RenderableType

from tilewright.job import Result
from tilewright.trace import busy_seconds
from tilewright.verify import Verdict
from tilewright.views import units
from tilewright.views.console import WIDTH, table

# Columns beside the names of the last rows.
LISTED = WIDTH - len("Peak memory  ")
# Of the forward phase; less is what two clocks differ by.
OVERLAP_SHOWN = 0.001


@dataclass(frozen=True)
class LayerTime:
    """The time of one layer, with that of the layers fused into it.

    Those have rows of their own that say `within` which layer their time is. Several layers with
    weights that were computed as one piece are one row, of kind `network`.
    """

    name: str
    kind: str
    seconds: float
    flops: int
    within: str | None = None


def layer_times(result: Result) -> list[LayerTime]:
    """Kernel time by layer, in the network's order, over the whole forward phase."""
    stages = {stage.name: stage for stage in result.network.stages}
    images = len(result.dataset)
    seconds: dict[tuple[str, ...], float] = {}
    for event in result.trace.of("kernel", "host"):
        seconds[event.layers] = seconds.get(event.layers, 0.0) + event.seconds
    covered = {name for layers in seconds for name in layers}
    for name in stages:
        if name not in covered:  # nothing to compute: flattening, or pixels that are floats
            seconds[(name,)] = 0.0
    order = list(stages)
    rows = []
    for layers in sorted(seconds, key=lambda names: order.index(names[0])):
        flops = sum(stages[layer].flops for layer in layers) * images
        weighted = [layer for layer in layers if stages[layer].parameter_shapes]
        if len(weighted) > 1:
            name = f"{layers[0]}..{layers[-1]}"
            rows.append(LayerTime(name, "network", seconds[layers], flops))
            continue
        main = (weighted or list(layers))[0]
        rows.append(LayerTime(main, stages[main].kind, seconds[layers], flops))
        for other in layers:
            if other != main:
                rows.append(LayerTime(other, stages[other].kind, 0.0, 0, within=main))
    return rows


def copy_seconds(result: Result) -> float:
    return sum(event.seconds for event in result.trace.of("copy"))


def copied_bytes(result: Result) -> int:
    return sum(event.bytes for event in result.trace.of("copy"))


def overlap_seconds(result: Result) -> float:
    """Time in which copies and kernels went on together, which their sum counts twice."""
    events = result.trace.of("kernel", "host", "copy")
    return sum(event.seconds for event in events) - busy_seconds(events)


def remainder_seconds(result: Result) -> float:
    """Time of the forward phase in which nothing that is recorded went on."""
    events = result.trace.of("kernel", "host", "copy")
    return result.trace.phase_seconds("forward") - busy_seconds(events)


def to_json(result: Result) -> dict[str, Any]:
    """The documented schema: docs/run.schema.json."""
    forward = result.trace.phase_seconds("forward")
    layers = layer_times(result)
    phases = [{"name": event.name, "seconds": event.seconds} for event in result.trace.of("phase")]
    return {
        "schema": "tilewright.run/1",
        "network": result.network.name,
        "data": result.dataset.source,
        "images": len(result.dataset),
        "batch": result.plan.batch,
        "device": str(result.plan.device),
        "device_name": result.device,
        "rung": result.rung.name,
        "plan": {**asdict(result.plan), "device": str(result.plan.device)},
        "accuracy": result.accuracy,
        "correct": result.correct,
        "phases": phases,
        "layers": [
            {
                "name": x.name,
                "kind": x.kind,
                "seconds": x.seconds,
                "flop": x.flops,
                "within": x.within,
            }
            for x in layers
        ],
        "copy_seconds": copy_seconds(result),
        "copied_bytes": copied_bytes(result),
        "overlap_seconds": overlap_seconds(result),
        "remainder_seconds": remainder_seconds(result),
        "forward_seconds": forward,
        "total_seconds": total_seconds(result),
        "images_per_second": len(result.dataset) / forward,
        "peak_memory_bytes": result.peak_memory_bytes,
        "environment": result.environment,
    }


def total_seconds(result: Result) -> float:
    """From the start of the job to the end of its last phase."""
    return max(event.end for event in result.trace.of("phase"))


def predictions_csv(result: Result) -> str:
    """One row an image; the label is empty where the data has none."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["index", "label", "predicted", "probability"])
    labels = result.dataset.labels
    for index, predicted in enumerate(result.predicted):
        label = "" if labels is None else labels[index]
        writer.writerow([index, label, predicted, f"{result.outputs[index, predicted]:.6f}"])
    return text.getvalue()


def report(result: Result) -> Iterator[RenderableType]:
    """Everything a person wants to know of a run, from top to bottom."""
    images = units.plural(len(result.dataset), "image")
    yield (
        f"{result.network.name} over {images}, "
        f"{_batches(result)}, rung {result.rung.label} on {result.plan.device} "
        f"({result.device}){_memory(result)}"
    )
    yield f"{result.dataset.source}\n"
    yield _phases(result)
    yield ""
    yield _layers(result)
    yield ""
    yield from _summary(result)


def _batches(result: Result) -> str:
    batch = min(result.plan.batch, len(result.dataset))
    return "one by one" if batch == 1 else f"{units.count(batch)} at a time"


def _memory(result: Result) -> str:
    return "" if result.plan.memory == "host" else f", memory {result.plan.memory}"


def _phases(result: Result) -> RenderableType:
    total = total_seconds(result)
    rows = table("Phases", "phase", ">time", ">share")
    between = total
    for event in result.trace.of("phase"):
        rows.add_row(event.name, units.seconds(event.seconds), units.share(event.seconds / total))
        between -= event.seconds
    rows.add_row("between phases", units.seconds(between), units.share(between / total))
    rows.add_section()
    rows.add_row("total", units.seconds(total), units.share(1))
    return rows


def _layers(result: Result) -> RenderableType:
    forward = result.trace.phase_seconds("forward")
    rows = table("Forward, layer by layer", "layer", "kind", ">time", ">share", ">GFLOP/s")
    layers = layer_times(result)
    for layer in layers:
        rate = f"{layer.flops / layer.seconds / 1e9:.1f}" if layer.flops and layer.seconds else "-"
        rows.add_row(
            layer.name,
            layer.kind,
            f"in {layer.within}" if layer.within else _time(layer.seconds),
            units.share(layer.seconds / forward) if layer.seconds else "-",
            rate,
        )  # fmt: skip
    computed = sum(layer.seconds for layer in layers)
    copies = copy_seconds(result)
    rows.add_section()
    rows.add_row("sum of layers", "", units.seconds(computed), units.share(computed / forward), "")
    if copies:
        moved = units.size(copied_bytes(result))
        rows.add_row("copies", moved, units.seconds(copies), units.share(copies / forward), "")
    overlap, rest = overlap_seconds(result), remainder_seconds(result)
    if overlap > OVERLAP_SHOWN * forward:
        rows.add_row(
            "at the same time",
            "",
            f"-{units.seconds(overlap)}",
            f"-{units.share(overlap / forward)}",
            "",
        )
    rows.add_row("remainder", "", units.seconds(rest), units.share(rest / forward), "")
    overall = result.network.flops * len(result.dataset) / forward / 1e9
    rows.add_row("forward (wall)", "", units.seconds(forward), units.share(1), f"{overall:.1f}")
    return rows


def _time(seconds: float) -> str:
    return units.seconds(seconds) if seconds else "-"


def _summary(result: Result) -> Iterator[RenderableType]:
    layers = layer_times(result)
    kinds: dict[str, float] = {}
    for layer in layers:
        kinds[layer.kind] = kinds.get(layer.kind, 0.0) + layer.seconds
    by_kind = sorted(((s, kind) for kind, s in kinds.items() if s), reverse=True)
    forward = result.trace.phase_seconds("forward")
    parts = [f"{kind} {units.seconds(s)} ({units.share(s / forward)})" for s, kind in by_kind]
    ops = [f"{x.name} {units.seconds(x.seconds)}" for x in layers if x.kind == "conv"]
    images = len(result.dataset)
    grid = table("", "", "")
    grid.show_header = False
    grid.add_row("By kind", _listed(parts))
    grid.add_row("Op time", ", ".join(ops) or "- (the convolutions are not computed separately)")
    if result.proof is not None:
        grid.add_row("Proof", proof(result.proof))
    if result.correct is None:
        grid.add_row("Correctness", "- (the data has no labels)")
    else:
        grid.add_row(
            "Correctness",
            f"{result.accuracy:.4f} ({units.count(result.correct)} of {units.count(images)})",
        )
    rate = units.count(images / forward)
    grid.add_row("Speed", f"{rate} images/s, {units.seconds(forward / images)} an image")
    grid.add_row("Peak memory", units.size(result.peak_memory_bytes))
    yield grid


def proof(verdict: Verdict) -> str:
    return f"{units.plural(verdict.trials, 'trial')}, worst {verdict.worst:.2f} of its bound"


def _listed(parts: list[str]) -> str:
    """Parts that are never broken in the middle, as many to a line as fit beside the row's name."""
    lines: list[str] = []
    for part in parts:
        if lines and len(f"{lines[-1]}, {part},") <= LISTED:
            lines[-1] += f", {part}"
        else:
            lines.append(part)
    return ",\n".join(lines)
