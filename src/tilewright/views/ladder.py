"""The ladder as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import RenderableType

from tilewright.climb import ALONE, TOGETHER, Ladder, Row, changed
from tilewright.measure import Sample
from tilewright.model.network import Network
from tilewright.reference import FLOAT32
from tilewright.views import units
from tilewright.views.console import table

# More convolutions than this have a table of their own.
INLINE_CONVOLUTIONS = 3
# The course checks correctness at these numbers of images.
COURSE_SIZES = (100, 1000, 10_000)


def report(
    ladder: Ladder, network: Network, images: int, labels: NDArray[np.int64] | None
) -> Iterator[RenderableType]:
    timed = [row for row in ladder.rows if row.network is not None]
    convolutions = [stage.name for stage in network.stages if stage.kind == "conv"]
    inline = convolutions if len(convolutions) <= INLINE_CONVOLUTIONS else []
    yield _times(ladder.rows, inline, labels)
    if not inline and convolutions:
        yield ""
        yield _operations(timed, convolutions)
    yield ""
    yield _speeds(timed, network.flops * images, images, ladder.peak)
    if labels is not None and (sizes := [n for n in COURSE_SIZES if n < images]):
        yield ""
        yield _correctness(timed, labels, [*sizes, images])
    yield ""
    yield from _notes(ladder)


def _times(
    ladder: list[Row], convolutions: list[str], labels: NDArray[np.int64] | None
) -> RenderableType:
    copied = any(row.copies for row in ladder)
    rows = table(
        "", "\nrung", "\nproof", *(f">{name}\nms" for name in convolutions), ">network\nms",
        ">\n± %", *((">copies\nms", ">copies\nMB") if copied else ()), ">\ncorrect",
    )  # fmt: skip
    for row in ladder:
        if row.network is None:
            rows.add_row(row.rung.label, "not here" if row.missing else "WRONG")
            continue
        copies = (
            units.milliseconds(row.copies.median) if row.copies else "-",
            units.megabytes(row.copied_bytes) if row.copies else "-",
        )
        rows.add_row(
            row.rung.label + row.operations_mark,
            "yes" if row.verdict else "-",
            *(units.milliseconds(row.operations[name].median) for name in convolutions),
            units.milliseconds(row.network.median),
            f"{50 * row.network.spread:.1f}",
            *(copies if copied else ()),
            _correct(row, labels),
        )
    return rows


def _speeds(timed: list[Row], flops: int, images: int, peak: float | None) -> RenderableType:
    rows = table(
        "", "\nrung", ">\nimages/s", ">\nGFLOP/s", ">% of\npeak", ">times\nthat of", "\n",
        f">times\n{timed[0].rung.label}", ">% of\nvendor",
    )  # fmt: skip
    first, vendor = timed[0].network, best_vendor(timed)
    for row in timed:
        assert row.network is not None and first is not None
        seconds = row.network.median
        rate = flops / seconds
        before = changed(row, timed)
        full = row.rung.precision == FLOAT32  # the peak is that of float32
        rows.add_row(
            row.rung.label,
            units.count(images / seconds),
            units.digits(rate / 1e9),
            units.digits(100 * rate / peak) if peak and full else "-",
            units.times(before.network.median / seconds) if before and before.network else "-",
            before.rung.label if before else "",
            units.times(first.median / seconds),
            f"{100 * vendor / seconds:.0f}" if vendor else "-",
        )
    return rows


def _correctness(timed: list[Row], labels: NDArray[np.int64], sizes: list[int]) -> RenderableType:
    """The share of right predictions among the first images, as the course checks it."""
    rows = table("Correctness", "images", *(f">{units.count(size)}" for size in sizes))
    shares: dict[tuple[str, ...], list[str]] = {}
    for row in timed:
        assert row.predicted is not None
        right = row.predicted == labels
        found = tuple(f"{float(right[:size].mean()):.4f}" for size in sizes)
        shares.setdefault(found, []).append(row.rung.label)
    for found, names in shares.items():
        rows.add_row("every rung" if len(shares) == 1 else ", ".join(names), *found)
    return rows


def best_vendor(rows: list[Row]) -> float | None:
    """The median of the fastest vendor rung."""
    times = [row.network.median for row in rows if row.rung.vendor and row.network]
    return min(times, default=None)


def to_json(rows: list[Row], images: int) -> list[dict[str, Any]]:
    """Raw samples of everything that was timed, and the verdicts."""
    return [
        {
            "rung": row.rung.label,
            "idea": row.rung.idea,
            "vendor": row.rung.vendor,
            "against": _against(row, rows),
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
            "copies": _sample(row.copies, images),
            "copied_bytes": row.copied_bytes,
        }
        for row in rows
    ]


def _against(row: Row, rows: list[Row]) -> dict[str, Any] | None:
    before = changed(row, rows)
    if before is None or before.network is None or row.network is None:
        return None
    return {"rung": before.rung.label, "times": before.network.median / row.network.median}


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
    rows = table("Op times", "conv", *(f">{row.rung.label}" for row in timed))
    for name in convolutions:
        times = [units.seconds(row.operations[name].median) for row in timed]
        rows.add_row(name, *times)
    return rows


def _notes(ladder: Ladder) -> Iterator[RenderableType]:
    rows = ladder.rows
    peak = f"measured, {units.digits(ladder.peak / 1e9)} GFLOP/s" if ladder.peak else "not measured"
    yield (
        "times are medians over all images, ± half the interquartile range; proof: every output "
        f"within\nits rounding bound; peak: {peak} in float32; vendor: the fastest library rung"
    )
    yield (
        "GFLOP/s count every tap of a convolution, also those outside the image, which a rung may "
        "leave out"
    )
    for row in rows:
        if row.verdict is not None and row.verdict.fault is not None:
            yield f"{row.rung.label} computes something wrong: {row.verdict.fault}"
            yield f"  (seed {row.verdict.seed}); it was not timed"
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.missing:
            reasons.setdefault(row.missing, []).append(row.rung.label)
    for reason, names in reasons.items():
        yield f"{', '.join(names)} cannot run here: {reason}"
    marks = {row.operations_mark for row in rows}
    if ALONE in marks:
        yield f"{ALONE} runs the network as one piece: its convolutions were timed on their own"
    if TOGETHER in marks:
        yield f"{TOGETHER} op times include the activation and pooling fused into a convolution"
    noisy = [row.rung.label for row in rows if row.network and row.network.verdict == "noisy"]
    if any(row.network and len(row.network.seconds) < 3 for row in rows):
        yield "fewer than 3 repeats: nothing can be said about noise"
    if noisy:
        yield f"noisy: {', '.join(noisy)}; quieten the machine or raise --repeats"
