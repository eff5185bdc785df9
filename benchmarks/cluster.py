"""Images through a local Ray cluster of 1, 2 and 4 worker processes, one of which may be killed.

    python -m benchmarks.cluster --images 100000 --json FILE      scaling
    python -m benchmarks.cluster --images 100000 --kill           a worker is killed in the middle

A small network with weights drawn at random over pictures of 28x28 in Parquet files. Each run is a
command of its own; its predictions are compared one by one with those of one process.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow
from pyarrow import parquet

import tilewright
from tilewright.files import atomic_write
from tilewright.truth.trials import random_parameters

FILES = 10
NETWORK = {
    "name": "mnist-like", "input": {"shape": [1, 28, 28]},
    "layers": [
        {"type": "convolution", "filters": 16, "kernel": 5}, {"type": "relu"},
        {"type": "max_pool", "size": 2, "stride": 2},
        {"type": "convolution", "filters": 32, "kernel": 5}, {"type": "relu"},
        {"type": "max_pool", "size": 2, "stride": 2},
        {"type": "flatten"}, {"type": "fully_connected", "outputs": 10}, {"type": "softmax"},
    ],
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rung", default="fused")
    parser.add_argument("--kill", action="store_true", help="one worker of each run, by SIGKILL")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tw-") as place:
        folder = Path(place)
        _prepare(folder, given.images)
        common = ["--net", str(folder / "net.safetensors"), "--data", str(folder / "images"),
                  "--rung", given.rung]  # fmt: skip
        alone, expected = _run(folder, common, False)
        print(f"one process: {alone['images_per_second']:,.0f} images/s", flush=True)
        runs = []
        for workers in given.workers:
            spread = [*common, "--on", "ray", "--workers", str(workers)]
            record, found = _run(folder, spread, given.kill)
            different = sum(a != b for a, b in zip(expected, found, strict=True))
            lost = sum(each["lost"] for each in record["workers"])
            runs.append({"workers": workers, "different": different, "record": record})
            print(
                f"{workers} workers: {_rate(record):,.0f} images/s while they had work, "
                f"{record['images_per_second']:,.0f} with their start; {lost} lost; "
                f"{different} of {len(found) - 1:,} predictions differ",
                flush=True,
            )
    if given.json:
        made = {"alone": alone, "runs": runs}
        with atomic_write(given.json) as file:
            file.write((json.dumps(made, indent=1).replace(place, "FOLDER") + "\n").encode())


def _prepare(folder: Path, images: int) -> None:
    """The network with its weights, and the pictures."""
    generator = np.random.default_rng(1)
    network = tilewright.load(NETWORK)
    network = network.with_parameters(random_parameters(network, generator))
    tilewright.save(network, folder / "net.safetensors")
    (folder / "images").mkdir()
    for number in range(FILES):
        count = images * (number + 1) // FILES - images * number // FILES
        pixels = generator.integers(0, 256, (count, 28 * 28), np.uint8)
        rows = {
            "image": pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(pixels.ravel()), 28 * 28),
            "label": generator.integers(0, 10, count),
        }
        path = folder / "images" / f"{number:03}.parquet"
        parquet.write_table(pyarrow.table(rows), path, row_group_size=2000)


def _run(folder: Path, options: list[str], kill: bool) -> tuple[dict, list[str]]:
    """The record of a run, and its predictions, a line an image."""
    files = ["--json", str(folder / "run.json"), "--predictions", str(folder / "run.csv")]
    command = [sys.executable, "-m", "tilewright", "run", *options, *files]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    if kill and "--on" in options:
        _kill_one(process)
    if process.wait():
        raise SystemExit(process.returncode)
    lines = (folder / "run.csv").read_text().splitlines()
    return json.loads((folder / "run.json").read_text()), lines


def _kill_one(process: subprocess.Popen[bytes]) -> None:
    """A worker that has computed for a while: half a second of its processor's time, or more."""
    began = {}
    while process.poll() is None:
        for place in Path("/proc").glob("[0-9]*"):
            try:
                name = (place / "cmdline").read_bytes()
                ticks = sum(
                    map(int, (place / "stat").read_text().rpartition(")")[2].split()[11:13])
                )
            except OSError:
                continue
            if not name.startswith(b"ray::MapWorker(MapBatches(Worker)).submit"):
                continue
            if ticks - began.setdefault(place.name, ticks) > os.sysconf("SC_CLK_TCK") / 2:
                os.kill(int(place.name), signal.SIGKILL)
                print(f"killed worker {place.name}", flush=True)
                return
        time.sleep(0.02)


def _rate(record: dict) -> float:
    """Images a second of all workers while they had work: without their start and their wait."""
    return sum(
        each["images"] / (each["loading_seconds"] + each["computing_seconds"])
        for each in record["workers"] if each["images"]
    )  # fmt: skip


if __name__ == "__main__":
    main()
