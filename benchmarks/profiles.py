"""The profiler checked on a CUDA GPU: exact counts, and the same times as others measure.

    pip install -e '.[cuda,torch]'
    python -m benchmarks.profiles --thesis FOLDER --output benchmarks/results/DATE-profiles

`--thesis` has the thesis's weights (convnetjs-cifar10) and images (cifar-10-batches-bin). The four
rungs of the thesis run over 1,200 images, one by one, under three memory plans, and what the
profiler counts must be exactly what the plan implies. Kernel times must agree with CUDA events, and
names and counts with PyTorch's profiler and ncu, each in a process of its own. `--long N` profiles
one run of N images. Writes OUTPUT.json and OUTPUT.md; the exit code is 1 if anything disagrees.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import witnesses
from benchmarks.thesis import IMAGES, MEMORIES, RUNGS, check, profiled, request
from rich.console import Console

import tilewright
from tilewright import environment
from tilewright.files import atomic_write
from tilewright.profiling import saved
from tilewright.profiling.result import Profile
from tilewright.profiling.session import prepare, record
from tilewright.results.document import plain
from tilewright.runtime import cupti_records
from tilewright.runtime.device import Device
from tilewright.views import profile as view
from tilewright.views import units
from tilewright.views.console import WIDTH
from tilewright.views.table import table
from tilewright.views.timeline import Timeline

SHOWN = (("direct", "managed"), ("direct", "per-layer"), ("padded-reduce", "resident"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=Device.parse, default="cuda")
    parser.add_argument("--thesis", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--long", type=int, default=0, metavar="N")
    given = parser.parse_args()
    facts = environment.fingerprint()
    document: dict[str, Any] = {
        "command": " ".join(["python -m benchmarks.profiles", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d"), "environment": plain(facts),
    }  # fmt: skip
    text = io.StringIO()
    screen = Console(file=text, width=WIDTH, highlight=False, markup=False, emoji=False)
    screen.print(
        f"# Profiles, {document['date']}\n\n`{document['command']}`, tilewright "
        f"{tilewright.__version__}, {', '.join(gpu.name for gpu in facts.gpus)}\n"
    )
    problems: list[str] = []
    found: dict[tuple[str, str], Profile] = {}
    steps = {
        "profiles": lambda: _profiles(given, found, screen, problems),
        "events": lambda: witnesses.cuda_events(given, found, RUNGS, screen, problems),
        "torch": lambda: witnesses.torch_profiler(given, RUNGS, MEMORIES, screen, problems),
        "ncu": lambda: witnesses.ncu(given, found, RUNGS, screen, problems),
        "long": lambda: _long(given, screen) if given.long else None,
    }
    for name, step in steps.items():
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            document[name] = step()
        except Exception as error:  # what was measured until here is kept
            problems.append(f"{name}: {type(error).__name__}: {error}")
        document["problems"] = problems
        words = "".join(f"- {problem}\n" for problem in problems) or "Everything agrees.\n"
        report = f"{text.getvalue()}\n## Verdict\n\n{words}"
        for suffix, content in ((".json", json.dumps(document, indent=1)), (".md", report)):
            with atomic_write(given.output.with_suffix(suffix)) as file:
                file.write(content.encode())
    print(words)
    return 1 if problems else 0


def _profiles(
    given: argparse.Namespace,
    found: dict[tuple[str, str], Profile],
    screen: Console,
    problems: list[str],
) -> list[Any]:
    """Every rung under every memory plan: the counts, then the tables of some."""
    rows = table(
        f"{given.images:,} images, one by one", "\nrung", "\nmemory", ">conv\ncalls", ">\nHtoD",
        ">\nDtoH", ">fault\ngroups", ">CPU\nfaults", ">kernels\nms", ">copies\nms",
        ">alone\nms", ">recorded\nms",
    )  # fmt: skip
    for rung in RUNGS:
        for memory in MEMORIES:
            start = time.perf_counter()
            profile = profiled(given, rung, memory)
            found[rung, memory] = profile
            problems += check(profile, rung, memory, given.images)
            calls = {row.name: row.calls for row in profile.named("kernel", "copy", "unified")}
            counted = [
                calls.get(name, 0)
                for name in (
                    f"{rung.replace('-', '_')}_conv", "[memcpy HtoD]", "[memcpy DtoH]",
                    cupti_records.GPU_FAULTS, cupti_records.CPU_FAULT,
                )
            ]  # fmt: skip
            kernels = sum(row.seconds for row in profile.of("kernel"))
            copies = sum(row.seconds for row in profile.of("copy"))
            seconds = (kernels, copies, float(np.median(profile.timed)), profile.wall.seconds)
            times = map(units.milliseconds, seconds)
            rows.add_row(rung, memory, *map(units.count, counted), *times)
            took = units.seconds(time.perf_counter() - start)
            print(f"{rung}, {memory}: {took}", file=sys.stderr, flush=True)
    screen.print("```text")
    screen.print(rows)
    screen.print("```\n")
    for rung, memory in SHOWN:
        screen.print(f"## {rung}, {memory}\n\n```text")
        for part in view.report(found[rung, memory]):
            screen.print(part)
        screen.print("```\n")
    return [plain(saved.record(profile)) for profile in found.values()]


def _long(given: argparse.Namespace, screen: Console) -> dict[str, Any]:
    """Many images one by one, with a timeline: memory must not grow, and the file be whole."""
    subject = prepare(request(given, "direct", "resident"), 1, lambda *told: None)
    dataset = subject.ready.dataset
    times = -(-given.long // len(dataset))
    images = np.tile(dataset.images, (times, 1, 1, 1))[: given.long]
    dataset = replace(dataset, images=images, labels=None)
    subject = replace(subject, ready=replace(subject.ready, dataset=dataset))
    subject.ready.program(dataset.images)  # so that all memory the run itself needs is taken
    before = environment.peak_memory_bytes()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "timeline.json"
        start = time.perf_counter()
        with atomic_write(path) as file:
            timeline = Timeline(file, path, subject.ceilings.device)
            profile = record(subject, timeline=timeline).profile
            timeline.finish()
        seconds, size = time.perf_counter() - start, path.stat().st_size
    result = {
        "images": given.long, "launches": sum(row.calls for row in profile.of("kernel")),
        "wall_seconds": profile.wall.seconds, "with_writing_seconds": seconds,
        "timeline_bytes": size, "more_memory_bytes": environment.peak_memory_bytes() - before,
        "dropped": profile.dropped,
    }  # fmt: skip
    screen.print(
        f"## {given.long:,} images one by one\n\n{result['launches']:,} launches profiled in "
        f"{units.seconds(seconds)} with a timeline of {units.size(size)}; the process took "
        f"{units.size(result['more_memory_bytes'])} more memory than before, "
        f"{profile.dropped} records were dropped.\n"
    )
    return result


if __name__ == "__main__":
    sys.exit(main())
