"""What rows of `benchmarks.cuda` say: engines by their fastest forms, and how they compare.

    python -m benchmarks.rows FILE.json

writes FILE.md, as the benchmark does after each network.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tilewright.files import atomic_write
from tilewright.measure.samples import Ratio, Sample, ratio

Row = dict[str, Any]
OURS = "network"
LIBRARIES = {
    "eager": "PyTorch eager", "channels-last": "channels last", "compile": "torch.compile",
    "jax": "JAX",
}  # fmt: skip
# An engine's name ends with how it is called: plainly if with none of these.
FORMS = ("-graph", "-pieces", "-autotune")


def engine_of(name: str) -> str:
    for form in FORMS:
        name = name.removesuffix(form)
    return name


def fastest(row: Row, *engines: str) -> str | None:
    """The form of some engines with the least median; None if none took part."""
    forms = (name for name in row["engines"] if engine_of(name) in engines)
    return min(forms, key=lambda name: seconds(row, name), default=None)


def seconds(row: Row, name: str) -> float:
    return float(row["engines"][name]["median_seconds"])


def least(row: Row, *engines: str) -> float | None:
    """Seconds of a batch by the fastest form of some engines."""
    name = fastest(row, *engines)
    return None if name is None else seconds(row, name)


def times(row: Row) -> Ratio:
    """How many times as long as ours the fastest library takes."""
    both = (row["engines"][str(fastest(row, *who))] for who in (LIBRARIES, (OURS,)))
    return ratio(*(Sample(tuple(each["samples_seconds"])) for each in both))


def value_of(found: Ratio) -> str:
    return f"{found.value:.2f}"


def interval_of(found: Ratio) -> str:
    """In words; fewer than six rounds give none."""
    ends = found.interval
    return f"{ends.low:.2f} to {ends.high:.2f}" if ends.known else "-"


def sentence(row: Row) -> str:
    """For who watches a run."""
    found, ours = times(row), 1e6 * float(least(row, OURS) or 0)
    failed = "".join(f"; {name} failed: {why}" for name, why in row["failed"].items())
    return (
        f"{row['network']} {row['precision']} {row['batch']}: {ours:.1f} µs, "
        f"{row['times']['over']} {value_of(found)} times as long ({interval_of(found)}); "
        f"built in {row['build_seconds']:.1f} s{failed}"
    )


def write_markdown(document: dict[str, Any], path: Path) -> None:
    """Beside the results themselves."""
    with atomic_write(path.with_suffix(".md")) as file:
        file.write(markdown(document).encode())


def markdown(document: dict[str, Any]) -> str:
    """A table a precision, and what came beside it."""
    about, rates = document["environment"], document["ceilings"]
    libraries = ", ".join(f"{name} {value}" for name, value in document["libraries"].items())
    lines = [
        f"{document['device']}, {document['versions']}, {libraries}, {about['date'][:10]}.",
        "",
        f"Measured: {rates['fp16_product'] / 1e12:.0f} TFLOP/s in fp16 products, "
        f"{rates['tf32_product'] / 1e12:.0f} in TF32, {rates['fp32_product'] / 1e12:.1f} in fp32 "
        f"({rates['fp32_plain'] / 1e12:.1f} in multiply-adds alone), "
        f"{rates['bytes'] / 1e12:.2f} TB/s.",
        "",
        "Times of a batch in µs, medians, pixels on the device; of each engine its fastest form. "
        "`called` is ours without a CUDA graph. The ratio is the best library's median over ours, "
        "with the interval that holds it in 95 of 100 cases. The difference is the largest of "
        "probabilities to PyTorch in float64.",
    ]
    heads = ["network", "images", "ours", "called", *LIBRARIES.values(), "times the best", "95 %"]
    for precision in dict.fromkeys(row["precision"] for row in document["rows"]):
        lines += [
            "", f"### {precision}", "", f"| {' | '.join(heads)} | difference |",
            f"| --- |{' ---: |' * len(heads)}",
        ]  # fmt: skip
        rows = (row for row in document["rows"] if row["precision"] == precision)
        lines += [f"| {' | '.join(_cells(row))} |" for row in rows]
    if document["streamed"]:
        lines += [
            "", "### From host memory to probabilities there (`streamed`)", "",
            "| network | precision | images | streamed, ms | copy alone, ms | times the copy |",
            "| --- | --- | ---: | ---: | ---: | ---: |",
        ]  # fmt: skip
    for row in document["streamed"]:
        streamed, copy = row["streamed_seconds"], row["copy_seconds"]
        lines.append(
            f"| {row['network']} | {row['precision']} | {row['batch']:,} | {1e3 * streamed:.3f} | "
            f"{1e3 * copy:.3f} | {streamed / copy:.2f} |"
        )
    lines += _failures(document)
    return "\n".join(lines) + "\n"


def _cells(row: Row) -> list[str]:
    found = times(row)
    shown = [least(row, OURS), seconds(row, OURS), *(least(row, each) for each in LIBRARIES)]
    return [
        row["network"], f"{row['batch']:,}",
        *("-" if each is None else f"{1e6 * each:,.1f}" for each in shown),
        value_of(found), interval_of(found), f"{row['largest_difference']:.0e}",
    ]  # fmt: skip


def _failures(document: dict[str, Any]) -> list[str]:
    lines = [
        f"- {row['network']}, {row['precision']}, {row['batch']:,} images: {name}: {why}"
        for row in (*document["rows"], *document["failed"])
        for name, why in row["failed"].items()
    ]
    return ["", "### What failed", "", *lines] if lines else []


if __name__ == "__main__":
    results = Path(sys.argv[1])
    write_markdown(json.loads(results.read_text()), results)
