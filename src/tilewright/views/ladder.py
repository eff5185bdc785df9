"""The ladder as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import RenderableType

from tilewright.climb import ALONE, TOGETHER, Row
from tilewright.measure import Sample
from tilewright.model.network import Network
from tilewright.views import units
from tilewright.views.console import table

# More convolutions than this have a table of their own.
INLINE_CONVOLUTIONS = 3


def report(
    rows: list[Row], network: Network, images: int, labels: NDArray[np.int64] | None
) -> Iterator[RenderableType]:
    timed = [row for row in rows if row.network is not None]
    first = next(row.network.median for row in rows if row.network is not None)
    convolutions = [stage.name for stage in network.stages if stage.kind == "conv"]
    inline = convolutions if len(convolutions) <= INLINE_CONVOLUTIONS else []
    ladder = table(
        "", "\nrung", "\nproof", *(f">{name}\nms" for name in inline), ">network\nms",
        ">\n± %", ">\nimages/s", ">\nGFLOP/s", f">times\n{timed[0].rung.name}",
        ">% of\nvendor", ">\ncorrect",
    )  # fmt: skip
    vendor = best_vendor(rows)
    for row in timed:
        assert row.network is not None
        seconds = row.network.median
        ladder.add_row(
            row.rung.name + row.operations_mark,
            "yes",
            *(units.milliseconds(row.operations[name].median) for name in inline),
            units.milliseconds(seconds),
            f"{50 * row.network.spread:.1f}",
            units.count(images / seconds),
            f"{network.flops * images / seconds / 1e9:.1f}",
            units.times(first / seconds),
            f"{100 * vendor / seconds:.0f}" if vendor else "-",
            _correct(row, labels),
        )
    yield ladder
    if not inline and convolutions:
        yield ""
        yield _operations(timed, convolutions)
    yield ""
    yield from _notes(rows)


def best_vendor(rows: list[Row]) -> float | None:
    """The median of the fastest vendor rung."""
    times = [row.network.median for row in rows if row.rung.vendor and row.network]
    return min(times, default=None)


def to_json(rows: list[Row], network: Network, images: int) -> list[dict[str, Any]]:
    """Raw samples of everything that was timed, and the verdicts."""
    return [
        {
            "rung": row.rung.name,
            "idea": row.rung.idea,
            "vendor": row.rung.vendor,
            "missing": row.missing,
            "verification": None
            if row.verdict is None
            else {
                "passed": row.verdict.passed,
                "seed": row.verdict.seed,
                "trials": row.verdict.trials,
                "outputs": row.verdict.outputs,
                "fault": str(row.verdict.fault) if row.verdict.fault else None,
            },
            "network": _sample(row.network, images),
            "operations_mark": row.operations_mark,
            "operations": {k: _sample(v, images) for k, v in row.operations.items()},
        }
        for row in rows
    ]


def _sample(sample: Sample | None, images: int) -> dict[str, Any] | None:
    if sample is None:
        return None
    return {
        "median_seconds": sample.median,
        "best_seconds": sample.best,
        "spread": sample.spread,
        "noise": sample.verdict,
        "images_per_second": images / sample.median,
        "samples_seconds": list(sample.seconds),
    }


def _correct(row: Row, labels: NDArray[np.int64] | None) -> str:
    if labels is None or row.predicted is None:
        return "-"
    return f"{float((row.predicted == labels).mean()):.4f}"


def _operations(timed: list[Row], convolutions: list[str]) -> RenderableType:
    rows = table("Op times", "conv", *(f">{row.rung.name}" for row in timed))
    for name in convolutions:
        times = [units.seconds(row.operations[name].median) for row in timed]
        rows.add_row(name, *times)
    return rows


def _notes(rows: list[Row]) -> Iterator[RenderableType]:
    yield (
        "times are medians over all images, ± half the interquartile range; proof: every output "
        "within\nits rounding bound; vendor: the fastest library rung"
    )
    for row in rows:
        if row.verdict is not None and row.verdict.fault is not None:
            yield f"{row.rung.name} computes something wrong: {row.verdict.fault}"
            yield f"  (seed {row.verdict.seed}); it was not timed"
    for row in rows:
        if row.missing:
            yield f"{row.rung.name} cannot run here: {row.missing}"
    marks = {row.operations_mark for row in rows}
    if ALONE in marks:
        yield f"{ALONE} runs the network as one piece: its convolutions were timed on their own"
    if TOGETHER in marks:
        yield f"{TOGETHER} op times include the activation and pooling fused into a convolution"
    noisy = [row.rung.name for row in rows if row.network and row.network.verdict == "noisy"]
    if noisy:
        yield f"noisy: {', '.join(noisy)}; quieten the machine or raise --repeats"
