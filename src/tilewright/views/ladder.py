"""The ladder as a table and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import RenderableType

from tilewright.climb import ALONE, TOGETHER, Ladder, Row, changed
from tilewright.measure import CONFIDENCE, FAIR, Ratio, Sample, ratio
from tilewright.model.network import Network
from tilewright.reference import FLOAT32
from tilewright.views import units
from tilewright.views.console import table

# More convolutions than this have a table of their own.
INLINE_CONVOLUTIONS = 3
# The course checks correctness at these numbers of images.
COURSE_SIZES = (100, 1000, 10_000)
SAME = "≈"  # before a ratio that cannot be told from 1
WILD = 0.99


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
    yield _speeds(ladder, timed, network, images)
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
        "", "\nrung", ">\nproof", *(f">{name}\nms" for name in convolutions), ">network\nms",
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
            _proof(row.verdict.worst) if row.verdict else "-",
            *(units.milliseconds(row.operations[name].median) for name in convolutions),
            units.milliseconds(row.network.median),
            _percent(row.network.uncertainty),
            *(copies if copied else ()),
            _correct(row, labels),
        )
    return rows


def _speeds(ladder: Ladder, timed: list[Row], network: Network, images: int) -> RenderableType:
    rows = table(
        "", "\nrung", ">\nimages/s", ">\nGFLOP/s", ">% of\npeak", ">\ntimes", ">\n± %",
        "\nthat of", f">times\n{timed[0].rung.label}", ">% of\nvendor",
    )  # fmt: skip
    first, vendor = timed[0].network, best_vendor(timed)
    for row in timed:
        assert row.network is not None and first is not None
        seconds = row.network.median
        before, gain = gained(row, ladder)
        share = peak_share(row, network, images, ladder.peak)
        rows.add_row(
            row.rung.label,
            units.count(images / seconds),
            units.digits(images * network.flops / seconds / 1e9),
            units.digits(100 * share) if share is not None else "-",
            _perhaps(gain, units.times(gain.value)) if gain else "-",
            _percent(gain.uncertainty) if gain else "-",
            before.rung.label if before else "",
            units.times(first.median / seconds),
            _of_vendor(row.network, vendor, ladder.doubt),
        )
    return rows


def gained(row: Row, ladder: Ladder) -> tuple[Row | None, Ratio | None]:
    """The row that a rung is compared with, and how many times as fast as that one it is."""
    before = changed(row, ladder.rows)
    if before is None or before.network is None or row.network is None:
        return None, None
    return before, ratio(before.network, row.network).doubted(ladder.doubt)


def peak_share(row: Row, network: Network, images: int, peak: float | None) -> float | None:
    """Of the measured peak, which is that of float32: operations that the rung really does."""
    if not peak or row.network is None or row.rung.precision.name != FLOAT32.name:
        return None
    return images * row.rung.executed_flops(network) / row.network.median / peak


def rounds(ladder: Ladder) -> int:
    """How many there were."""
    return max((len(row.network.seconds) for row in ladder.rows if row.network), default=0)


def _proof(worst: float) -> str:
    """Rounded down: less than all of a bound must not look like all of it."""
    return f"{math.floor(100 * worst) / 100:.2f}"


def _of_vendor(sample: Sample, vendor: Sample | None, doubt: float) -> str:
    """Speed in percent of the fastest library's."""
    if vendor is None:
        return "-"
    found = ratio(vendor, sample).doubted(doubt)
    text = f"{100 * found.value:.0f}"
    return text if sample is vendor else _perhaps(found, text)


def _perhaps(found: Ratio, text: str) -> str:
    """Marked where the two may as well be the same."""
    return text if found.differs else f"{SAME}{text}"


def _percent(share: float) -> str:
    """Of an uncertainty; beyond 99 % it hardly matters by how much."""
    if math.isinf(share):
        return "-"
    return units.digits(100 * share) if share < WILD else ">99"


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


def best_vendor(rows: list[Row]) -> Sample | None:
    """The times of the fastest vendor rung."""
    times = [row.network for row in rows if row.rung.vendor and row.network]
    return min(times, key=lambda sample: sample.median, default=None)


def to_json(ladder: Ladder, network: Network, images: int) -> list[dict[str, Any]]:
    """Raw samples of everything that was timed, and the verdicts."""
    return [
        {
            "rung": row.rung.label,
            "idea": row.rung.idea,
            "vendor": row.rung.vendor,
            "against": _against(row, ladder),
            "missing": row.missing,
            "verification": None
            if row.verdict is None
            else {
                "passed": row.verdict.passed,
                "seed": row.verdict.seed,
                "trials": row.verdict.trials,
                "outputs": row.verdict.outputs,
                "worst": row.verdict.worst if math.isfinite(row.verdict.worst) else None,
                "fault": str(row.verdict.fault) if row.verdict.fault else None,
            },
            "executed_flop": row.rung.executed_flops(network),
            "peak_share": peak_share(row, network, images, ladder.peak),
            "network": _sample(row.network, images),
            "operations_mark": row.operations_mark,
            "operations": {k: _sample(v, images) for k, v in row.operations.items()},
            "copies": _sample(row.copies, images),
            "copied_bytes": row.copied_bytes,
        }
        for row in ladder.rows
    ]


def _against(row: Row, ladder: Ladder) -> dict[str, Any] | None:
    before, gain = gained(row, ladder)
    if before is None or gain is None:
        return None
    return {
        "rung": before.rung.label,
        "times": gain.value,
        "interval": gain.interval.ends,
        "differs": gain.differs,
    }


def _sample(sample: Sample | None, images: int) -> dict[str, Any] | None:
    if sample is None:
        return None
    return {
        "median_seconds": sample.median,
        "best_seconds": sample.best,
        "interval_seconds": sample.interval.ends,
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
        f"times are medians over all images, ± half of their {100 * CONFIDENCE:.0f} % interval; "
        f"{SAME} may as well be\nequal; proof: the largest error seen as a share of its rounding "
        f"bound, proven up to 1; peak:\n{peak} in float32; vendor: the fastest library rung"
    )
    if any(row.rung.skips_taps for row in rows):
        yield (
            "GFLOP/s count every tap of a convolution; % of peak only those that a rung computes: "
            "some of ours\nleave out the taps outside the image"
        )
    yield from ladder.conditions.notes
    if ladder.doubt:
        yield "ratios are uncertain by as much: a rung for all cores loses more than one for a core"
    yield from ladder.notices
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
    if any(row.network and not row.network.interval.known for row in rows):
        yield "fewer than 6 rounds: nothing can be said about noise"
    noisy = [row.rung.label for row in rows if row.network and row.network.verdict == "noisy"]
    if noisy:
        yield (
            f"not certain to {100 * FAIR:.0f} % after {rounds(ladder)} rounds: {', '.join(noisy)}; "
            "quieten the machine or raise --repeats"
        )
