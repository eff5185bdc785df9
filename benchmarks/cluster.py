"""Images through a local Ray cluster of 1, 2 and 4 worker processes, one of which may be killed.

    python -m benchmarks.cluster --images 100000 --json FILE      scaling
    python -m benchmarks.cluster --images 100000 --kill           a worker is killed in the middle
    python -m benchmarks.cluster --files npz pictures cifar ...   other files than Parquet

A small network with weights drawn at random over drawn pictures, of 28x28 unless another shape is
given. Each run is a command of its own; its predictions are compared one by one with those of one
process.
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
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow
from numpy.typing import NDArray
from PIL import Image
from pyarrow import parquet

import tilewright
from tilewright.files import atomic_write
from tilewright.truth.trials import random_parameters

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]
FILES = 10
SHAPE = (1, 28, 28)


def network_of(shape: Sequence[int]) -> dict:
    """For pictures of a shape; large ones are made smaller first."""
    smaller = shape[1] // SHAPE[1]
    first = [{"type": "max_pool", "size": smaller, "stride": smaller}] if smaller > 1 else []
    return {
        "name": "mnist-like", "input": {"shape": list(shape)},
        "layers": [
            *first,
            {"type": "convolution", "filters": 16, "kernel": 5}, {"type": "relu"},
            {"type": "max_pool", "size": 2, "stride": 2},
            {"type": "convolution", "filters": 32, "kernel": 5}, {"type": "relu"},
            {"type": "max_pool", "size": 2, "stride": 2},
            {"type": "flatten"}, {"type": "fully_connected", "outputs": 10}, {"type": "softmax"},
        ],
    }  # fmt: skip


def write_parquet(folder: Path, number: int, pixels: Pixels, labels: Labels) -> None:
    size = pixels[0].size
    flat = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(pixels.ravel()), size)
    path = folder / f"{number:03}.parquet"
    parquet.write_table(pyarrow.table({"image": flat, "label": labels}), path, row_group_size=2000)


def write_npz(folder: Path, number: int, pixels: Pixels, labels: Labels) -> None:
    np.savez(folder / f"{number:03}.npz", images=pixels, labels=labels)


def write_pictures(folder: Path, number: int, pixels: Pixels, labels: Labels) -> None:
    """A folder a class."""
    for index, (picture, label) in enumerate(zip(pixels, labels, strict=True)):
        (folder / f"class{label}").mkdir(exist_ok=True)
        image = Image.fromarray(picture.transpose(1, 2, 0).squeeze())
        image.save(folder / f"class{label}" / f"{number:03}-{index:06}.png", compress_level=0)


def write_cifar(folder: Path, number: int, pixels: Pixels, labels: Labels) -> None:
    """Five batches: two of ours make one."""
    records = np.concatenate([labels[:, None].astype(np.uint8), pixels.reshape(len(pixels), -1)], 1)
    with (folder / f"data_batch_{number // 2 + 1}.bin").open("ab") as file:
        file.write(records.tobytes())


WRITERS = {
    "parquet": write_parquet, "npz": write_npz, "pictures": write_pictures, "cifar": write_cifar,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--files", choices=WRITERS, nargs="+", default=["parquet"])
    parser.add_argument("--shape", type=int, nargs=3, default=SHAPE, metavar=("C", "H", "W"))
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rung", default="fused")
    parser.add_argument("--kill", action="store_true", help="one worker of each run, by SIGKILL")
    parser.add_argument(
        "--group", type=Path, help="folder of a control group for the runs on Ray: less memory"
    )
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    made = [_measured(given, kind) for kind in given.files]
    if given.json:
        with atomic_write(given.json) as file:
            file.write((json.dumps(made, indent=1) + "\n").encode())


def _measured(given: argparse.Namespace, kind: str) -> dict:
    """Runs over files of a kind, and how many of their predictions differ."""
    with tempfile.TemporaryDirectory(prefix="tw-") as place:
        folder = Path(place)
        _prepare(folder, given.images, kind, (3, 32, 32) if kind == "cifar" else given.shape)
        common = ["--net", str(folder / "net.safetensors"), "--data", str(folder / "images"),
                  "--rung", given.rung]  # fmt: skip
        alone, expected = _run(folder, common)
        print(f"{kind}, one process: {alone['images_per_second']:,.0f} images/s", flush=True)
        runs = []
        for workers in given.workers:
            spread = [*common, "--on", "ray", "--workers", str(workers)]
            record, found = _run(folder, spread, given.kill, given.group)
            different = sum(a != b for a, b in zip(expected, found, strict=True))
            lost = sum(each["lost"] for each in record["workers"])
            runs.append({"workers": workers, "different": different, "record": record})
            print(
                f"{kind}, {workers} workers: {_rate(record):,.0f} images/s while they had work, "
                f"{record['images_per_second']:,.0f} with their start; {lost} lost, "
                f"{record['peak_memory_bytes'] / 1e6:,.0f} MB in one of them; "
                f"{different} of {len(found) - 1:,} predictions differ",
                flush=True,
            )
        made = {"files": kind, "alone": alone, "runs": runs}
        return json.loads(json.dumps(made).replace(place, "FOLDER"))


def _prepare(folder: Path, images: int, kind: str, shape: Sequence[int]) -> None:
    """The network with its weights, and the pictures."""
    generator = np.random.default_rng(1)
    network = tilewright.load(network_of(shape))
    network = network.with_parameters(random_parameters(network, generator))
    tilewright.save(network, folder / "net.safetensors")
    (folder / "images").mkdir()
    for number in range(FILES):
        count = images * (number + 1) // FILES - images * number // FILES
        pixels = generator.integers(0, 256, (count, *shape), np.uint8)
        WRITERS[kind](folder / "images", number, pixels, generator.integers(0, 10, count))


def _run(
    folder: Path, options: list[str], kill: bool = False, group: Path | None = None
) -> tuple[dict, list[str]]:
    """The record of a run, and its predictions, a line an image."""
    files = ["--json", str(folder / "run.json"), "--predictions", str(folder / "run.csv")]
    command = [sys.executable, "-m", "tilewright", "run", *options, *files]
    if group is not None:
        command = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group), *command]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    if kill:
        _kill_one(process)
    if process.wait():
        raise SystemExit(process.returncode)
    lines = (folder / "run.csv").read_text().splitlines()
    return json.loads((folder / "run.json").read_text()), lines


def _kill_one(process: subprocess.Popen[bytes]) -> None:
    """A worker that has computed for a while: half a second of its processor's time, or more."""
    began = {}
    while process.poll() is None:
        for worker in _children(_children([process.pid])):  # by way of Ray's own process
            try:
                name = Path(f"/proc/{worker}/cmdline").read_bytes()
                ticks = sum(map(int, _status(worker)[11:13]))
            except OSError:
                continue
            if not name.startswith(b"ray::MapWorker(MapBatches(Worker)).submit"):
                continue
            if ticks - began.setdefault(worker, ticks) > os.sysconf("SC_CLK_TCK") / 2:
                os.kill(worker, signal.SIGKILL)
                print(f"killed worker {worker}", flush=True)
                return
        time.sleep(0.02)


def _children(parents: Sequence[int]) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            if int(_status(int(place.name))[1]) in parents:
                found.append(int(place.name))
    return found


def _status(process: int) -> list[str]:
    """What the system says of a process after its name: state, parent and so on."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def _rate(record: dict) -> float:
    """Images a second of all workers while they had work: without their start and their wait."""
    return sum(
        each["images"] / (each["loading_seconds"] + each["computing_seconds"])
        for each in record["workers"] if each["images"]
    )  # fmt: skip


if __name__ == "__main__":
    main()
