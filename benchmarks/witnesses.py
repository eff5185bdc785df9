"""Others who measure the same runs: CUDA events, PyTorch's profiler, ncu. For profiles.py."""

from __future__ import annotations

import argparse
import csv
import io
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.thesis import expected, profiled, request
from rich.console import Console

from tilewright.execute import Program
from tilewright.job import make_ready
from tilewright.profiling.result import Profile
from tilewright.rungs.gpu.design import BLOCK_THREADS, source
from tilewright.runtime.cupti import CuptiCollector
from tilewright.runtime.device import Device
from tilewright.runtime.dialect import Source
from tilewright.trace import Trace
from tilewright.views import units
from tilewright.views.table import table

TORCH_IMAGES, NCU_IMAGES = 100, 3
# Batches whose launches fit into a GPU's queue, and launches of some 0.3 ms that hold the GPU up
# until they are all there.
QUEUED_BATCHES, HOLD_UPS = 20, 80
EMPTY, LAUNCHES = "TW_ENTRY TW_NAME(TW_GLOBAL float *x) {}", 300
# How far sums of kernel times may lie apart: of kernels that are long, and of those that are not
# much longer than the events around them.
NEAR, ABOUT = 0.05, 0.10
COPIES = {"Memcpy HtoD": "[memcpy HtoD]", "Memcpy DtoH": "[memcpy DtoH]"}


def cuda_events(
    given: argparse.Namespace,
    found: dict[tuple[str, str], Profile],
    rungs: Any,
    screen: Console,
    problems: list[str],
) -> list[Any]:
    """Sums of kernel times by CUPTI and by CUDA events: in one batch, and one by one.

    Events around a short kernel have the wait for the host in them, and themselves. So launches
    are queued up behind others first, and what events add to an empty kernel is subtracted.
    """
    rows = table(
        "Sum of all kernels, resident", "\nrung", "\nimages at a time", ">CUPTI\nms",
        ">CUDA events\nms", ">events,\n% more",
    )  # fmt: skip
    results = []
    for rung in rungs:
        for batch in (given.images, 1):
            one_by_one = found[rung, "resident"]
            profile = one_by_one if batch == 1 else profiled(given, rung, "resident", batch)
            ours = sum(row.seconds for row in profile.of("kernel"))
            ready = make_ready(request(given, rung, "resident", batch), Trace())
            program, images = ready.program, ready.dataset.images
            theirs = _queued_seconds(program, images, batch)
            more = theirs / ours - 1
            rows.add_row(
                rung, "one by one" if batch == 1 else "all", units.milliseconds(ours),
                units.milliseconds(theirs), f"{100 * more:.1f}",
            )  # fmt: skip
            results.append({"rung": rung, "batch": batch, "cupti": ours, "events": theirs})
            if abs(more) > (ABOUT if batch == 1 else NEAR):
                problems.append(f"{rung}, batch {batch}: events say {100 * more:.1f} % more")
    screen.print("## CUDA events\n\n```text")
    screen.print(rows)
    screen.print("```\n")
    return results


def _queued_seconds(program: Program, images: Any, batch: int) -> float:
    """All kernels of all images, so many at a time, by events, with the queue never empty."""
    runtime: Any = program.runtime
    constants = {"SUMS": 8, "ROUNDS": 128}
    held_up = runtime.compile(source("hold_up", "peak.cl", (BLOCK_THREADS, 1, 1), constants))
    blocks = 256 * runtime.limits.processors
    values = runtime.upload(np.full(blocks * BLOCK_THREADS, 0.5, np.float32))
    x, out = runtime.upload(images), runtime.allocate((len(images), *program.network.output_shape))

    def hold_up() -> None:
        runtime.trace = None
        for _ in range(HOLD_UPS):
            runtime.enqueue(held_up, (blocks, 1, 1), (values,), ())

    bracket = _bracket_seconds(runtime, hold_up)
    total = 0.0
    for first in range(0, len(images), QUEUED_BATCHES * batch):
        hold_up()
        trace = runtime.trace = Trace()
        for start in range(first, min(first + QUEUED_BATCHES * batch, len(images)), batch):
            program.into(x[start : start + batch], out[start : start + batch])
        runtime.synchronise()
        total += sum(event.seconds - bracket for event in trace.of("kernel"))
    runtime.trace = None
    return total


def _bracket_seconds(runtime: Any, hold_up: Callable[[], None]) -> float:
    """What two events around a launch add to it: by a kernel that does nothing, whose own time
    CUPTI knows."""
    empty = runtime.compile(Source("empty", EMPTY, (32, 1, 1), ()))
    given = runtime.allocate((1,))
    means = []
    for with_cupti in (False, True):
        hold_up()
        trace = runtime.trace = Trace()
        trace.collector = CuptiCollector(trace, runtime.index) if with_cupti else None
        for _ in range(LAUNCHES):
            runtime.enqueue(empty, (1, 1, 1), (given,), ())
        runtime.synchronise()
        if trace.collector is not None:
            trace.collector.close()
        seconds = [e.seconds for e in trace.of("kernel") if e.name == "empty"]
        means.append(np.median(seconds))
    runtime.trace = None
    return float(means[0] - means[1])


def torch_profiler(
    given: argparse.Namespace, rungs: Any, memories: Any, screen: Console, problems: list[str]
) -> Any:
    """The same kernels and copies, as PyTorch's profiler counts them in another process."""
    command = [
        sys.executable, "-m", "benchmarks.witnesses", str(given.thesis), str(given.device),
        ",".join(rungs), ",".join(memories),
    ]  # fmt: skip
    child = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if child.returncode:
        problems.append(f"torch.profiler: {child.stderr.strip()[-300:]}")
        return None
    counted = json.loads(child.stdout.splitlines()[-1])
    right = 0
    for key, seen in counted.items():
        rung, memory = key.split(" ")
        kernels, copies = expected(rung, memory, TORCH_IMAGES)
        wanted = {**kernels, **copies}
        if seen != wanted:
            problems.append(f"torch.profiler, {key}: {seen}, not {wanted}")
        right += seen == wanted
    screen.print(
        f"## torch.profiler\n\nIn a process of its own, {TORCH_IMAGES} images one by one: the same "
        f"names and counts of kernels and copies in {right} of {len(counted)} cases.\n"
    )
    return counted


def _torch_child(thesis: Path, device: str, rungs: list[str], memories: list[str]) -> None:
    from torch.profiler import ProfilerActivity, profile

    given = argparse.Namespace(thesis=thesis, device=Device.parse(device), images=TORCH_IMAGES)
    counted = {}
    for rung in rungs:
        for memory in memories:
            ready = make_ready(request(given, rung, memory), Trace())
            with profile(activities=[ProfilerActivity.CUDA]) as recorded:
                ready.program(ready.dataset.images)
            names: Counter[str] = Counter()
            for event in recorded.events():
                if event.device_type.name == "CUDA":
                    copy = [
                        title for start, title in COPIES.items() if event.name.startswith(start)
                    ]
                    names[copy[0] if copy else event.name] += 1
            counted[f"{rung} {memory}"] = dict(names)
    print(json.dumps(counted))


def ncu(
    given: argparse.Namespace,
    found: dict[tuple[str, str], Profile],
    rungs: Any,
    screen: Console,
    problems: list[str],
) -> Any:
    """The same kernels under Nsight Compute, which runs each several times over."""
    tool = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    if not Path(tool).is_file():
        screen.print("## ncu\n\nNot here.\n")
        return None
    rows = table("", "rung", "kernel", ">launches", ">ncu, mean µs", ">CUPTI, mean µs")
    results = {}
    for rung in rungs:
        command = [
            tool, "--clock-control", "none", "--cache-control", "none", "--csv", "--metrics",
            "gpu__time_duration.sum", sys.executable, "-m", "tilewright", "run", "--net",
            "cifar10", "--weights", f"{given.thesis}/convnetjs-cifar10", "--data",
            f"{given.thesis}/cifar-10-batches-bin", "--images", str(NCU_IMAGES), "--batch", "1",
            "--device", str(given.device), "--rung", rung, "--memory", "per-layer",
        ]  # fmt: skip
        child = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        lines = [line for line in child.stdout.splitlines() if line.startswith('"')]
        times: dict[str, list[float]] = {}
        for line in csv.DictReader(io.StringIO("\n".join(lines))):
            value = float(line["Metric Value"].replace(",", ""))
            scale = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0}[line["Metric Unit"]]
            times.setdefault(line["Kernel Name"].split("(")[0], []).append(scale * value)
        # Once to warm up and once in earnest.
        wanted, _ = expected(rung, "per-layer", 2 * NCU_IMAGES)
        seen = {name: len(values) for name, values in times.items()}
        if seen != wanted:
            problems.append(f"ncu, {rung}: {seen}, not {wanted}; {child.stderr.strip()[-200:]}")
        profile = found[rung, "per-layer"]
        ours = {row.name: 1e6 * row.average for row in profile.named("kernel")}
        for name, values in times.items():
            rows.add_row(
                rung, name, units.count(len(values)), f"{np.mean(values):.2f}",
                f"{ours.get(name, 0):.2f}",
            )  # fmt: skip
        results[rung] = {"ncu_microseconds": times, "cupti_mean_microseconds": ours}
    screen.print("## ncu\n\n```text")
    screen.print(rows)
    screen.print("```\n")
    return results


if __name__ == "__main__":
    _torch_child(Path(sys.argv[1]), sys.argv[2], sys.argv[3].split(","), sys.argv[4].split(","))
