"""The ladder as a picture: how long a network, or its convolutions, take on every rung.

    python -m benchmarks.picture benchmarks/results/DATE-ladder-h200.json docs/images/ladder-gpu.svg
    tilewright ladder --json ladder.json && python -m benchmarks.picture ladder.json ladder.svg

It takes what `benchmarks.ladder` writes, and what `tilewright ladder --json` does. Where the time
on a device was measured, that of the whole network is drawn, as the ladder ranks by it; else that
of the convolutions. Its colours follow the reader's, light or dark.
"""

from __future__ import annotations

import argparse
import json
import math
from html import escape
from pathlib import Path
from typing import Any

from tilewright.files import atomic_write
from tilewright.views import units

WIDTH, NAMES, FIGURES, LINE, TOP = 820, 150, 80, 24, 64
STYLE = """<style>
rect { fill: #ffffff } text { fill: #222222 } line { stroke: #d8d8d8 }
.own { fill: #2f6db3 } .vendor { fill: #c9772f }
@media (prefers-color-scheme: dark) {
  rect { fill: #16191d } text { fill: #d6d9dd } line { stroke: #3a4048 }
  .own { fill: #5d9be0 } .vendor { fill: #e0964f }
}
</style>"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("picture", type=Path)
    given = parser.parse_args()
    document = json.loads(given.results.read_text())
    with atomic_write(given.picture) as file:
        file.write(picture(document).encode())


def picture(document: dict[str, Any]) -> str:
    """One panel a network, below each other."""
    # `tilewright ladder --json` is about one network and names it.
    networks = document.get("networks") or {document["network"]: document}
    parts, height = [], 0
    for name, network in networks.items():
        part, size = panel(name, network, height)
        parts.append(part)
        height += size
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="Helvetica, Arial, sans-serif" '
        f'font-size="13">{STYLE}<rect width="100%" height="100%"/>'
        f"{''.join(parts)}</svg>\n"
    )


def panel(name: str, network: dict[str, Any], top: int) -> tuple[str, int]:
    """One network's bars on a logarithmic scale, and how high they are together."""
    timed = [rung for rung in network["rungs"] if rung["network"]]
    whole = bool(timed) and all(rung.get("device_time") for rung in timed)
    of = _device if whole else _convolutions
    drawn = [rung for rung in timed if whole or rung["operations"]]
    rows = [(rung["rung"], rung["vendor"], of(rung)) for rung in drawn]
    if not rows:
        raise SystemExit(f"{name}: nothing was timed, there is nothing to draw")
    low = 10 ** math.floor(math.log10(min(seconds for *_, seconds in rows)))
    high = max(10 * low, 10 ** math.ceil(math.log10(max(seconds for *_, seconds in rows))))

    def place(seconds: float) -> float:
        room = WIDTH - NAMES - FIGURES
        return NAMES + room * math.log10(seconds / low) / math.log10(high / low)

    bottom = top + TOP + LINE * len(rows)
    what = "time on the device" if whole else "time of all convolutions"
    title = f"{name}: {what}, {network['images']:,} images, {network['device_name']}"
    marks = [f'<text x="8" y="{top + 24}" font-size="15">{escape(title)}</text>']
    decade = low
    while decade <= high * 1.001:
        x = place(decade)
        marks.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top + TOP - 8}" y2="{bottom}"/>'
            f'<text x="{x:.1f}" y="{top + TOP - 13}" text-anchor="middle" font-size="11">'
            f"{units.seconds(decade)}</text>"
        )
        decade *= 10
    for index, (rung, vendor, seconds) in enumerate(rows):
        y = top + TOP + LINE * index
        marks.append(
            f'<text x="{NAMES - 8}" y="{y + 15}" text-anchor="end">{escape(rung)}</text>'
            f'<rect x="{NAMES}" y="{y + 3}" width="{place(seconds) - NAMES:.1f}" '
            f'height="{LINE - 7}" class="{"vendor" if vendor else "own"}"/>'
            f'<text x="{place(seconds) + 6:.1f}" y="{y + 15}">{units.seconds(seconds)}</text>'
        )
    return "".join(marks), bottom - top + 24


def _device(rung: dict[str, Any]) -> float:
    return float(rung["device_time"]["median_seconds"])


def _convolutions(rung: dict[str, Any]) -> float:
    return float(sum(sample["median_seconds"] for sample in rung["operations"].values()))


if __name__ == "__main__":
    main()
