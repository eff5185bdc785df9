"""The whole GPU ladder on both networks, and the thesis's memory plans, in one run.

    pip install -e '.[cuda,torch]'
    python -m benchmarks.ladder --device cuda --fashion-mnist FOLDER [--thesis FOLDER] \\
        --output benchmarks/results/DATE-ladder-h200

Every rung in each of its precisions is verified, unless it was on this machine before, then all
take turns with PyTorch (TF32 off and on) and torch.compile, with `--jax` also with JAX: `cifar10`
on 10,000 drawn images, `ece408` on the 10,000 of Fashion-MNIST's test set (`--fashion-mnist` has
the IDX files). With `--thesis`, which has the thesis's weights (convnetjs-cifar10) and images
(cifar-10-batches-bin), its question follows: 1,200 images one by one, under every memory plan.
Writes OUTPUT.json, with every raw sample, and OUTPUT.md.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import guests
from rich.console import Console

import tilewright
from tilewright import environment
from tilewright.climb import climb, prepare
from tilewright.data.catalogue import open_data
from tilewright.execute import Program, program_of
from tilewright.files import atomic_write
from tilewright.measure.samples import interleave
from tilewright.model.load import load
from tilewright.results.climbed import record
from tilewright.results.document import plain
from tilewright.rungs import choose
from tilewright.runtime.device import Device
from tilewright.trace import Trace, busy_seconds
from tilewright.views import ladder as view
from tilewright.views import units
from tilewright.views.console import WIDTH
from tilewright.views.table import table

THESIS_RUNGS = ("direct", "direct-reduce", "padded", "padded-reduce", "tuned")
THESIS_IMAGES, THESIS_ACCURACY = 1200, 0.7825


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=Device.parse, default="cuda")
    parser.add_argument("--thesis", type=Path, help="weights and images, for the memory plans")
    parser.add_argument("--fashion-mnist", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--images", type=int, nargs=2, default=(10_000, 10_000))
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--jax", action="store_true", help="XLA's program takes part")
    given = parser.parse_args()
    document: dict[str, Any] = {
        "command": " ".join(["python -m benchmarks.ladder", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d"), "environment": plain(environment.fingerprint()),
        "networks": {},
    }  # fmt: skip
    text = io.StringIO()
    screen = Console(file=text, width=WIDTH, highlight=False, markup=False)
    sources = {"cifar10": None, "ece408": f"{given.fashion_mnist}"}
    for (net, data), images in zip(sources.items(), given.images, strict=True):
        document["networks"][net] = _ladder(net, data, images, given, screen)
        _write(given.output, document, text)
    if given.thesis:
        document["memory"] = _memory(given, screen)
        _write(given.output, document, text)


def _ladder(
    net: str, data: str | None, images: int, given: argparse.Namespace, screen: Console
) -> dict[str, Any]:
    """Every rung and guest on one network."""
    subject = prepare(net, None, data, images)
    invited = guests.guests(given.jax) if given.device.kind == "cuda" else []
    ladder = climb(
        subject.network, subject.dataset.images, given.device, given.batch, given.repeats,
        guests=invited, progress=lambda doing, done, of: _say(f"{net}: {doing} {done}/{of}"),
        keep=True,
    )  # fmt: skip
    count = len(subject.dataset)
    screen.print(
        f"## {net}: {units.count(count)} images, {units.count(given.batch)} at a time, "
        f"{ladder.device}\n\n{subject.dataset.source}; {subject.weights_note}\n\n```text"
    )
    made = record(ladder, subject, given.device, given.batch, None, environment.fingerprint())
    for part in view.tables(made):
        screen.print(part)
    screen.print("```\n")
    return {
        "images": count, "batch": given.batch, "data": subject.dataset.source,
        "device_name": ladder.device, "peak_flops": ladder.peak, "order_seed": ladder.seed,
        "conditions": plain(made.conditions),
        "flop_an_image": subject.network.flops,
        "rungs": [plain(row) for row in made.rows],
    }  # fmt: skip


def _memory(given: argparse.Namespace, screen: Console) -> list[dict[str, Any]]:
    """The thesis's table: 1,200 images one by one, under every memory plan."""
    network = load("cifar10", str(given.thesis / "convnetjs-cifar10"))
    images = str(given.thesis / "cifar-10-batches-bin")
    dataset = open_data(images, network.input.shape, THESIS_IMAGES)
    assert dataset.labels is not None
    programs = {}
    for name in THESIS_RUNGS:
        rung = choose(given.device, name)
        for memory in rung.memories:
            programs[name, memory] = program_of(network, rung, given.device, 1, memory)
    subjects = {key: _turn(program, dataset.images) for key, program in programs.items()}
    samples = interleave(subjects, 3, progress=lambda key: _say(f"memory plans: {key}"))
    rows = table(
        "", "\nrung", "\nmemory", ">time\nms", ">an image\nµs", ">kernels\nms", ">copies\nms",
        ">copies\nMB", ">\ncorrect",
    )  # fmt: skip
    results = []
    for (name, memory), sample in samples.items():
        trace = Trace()
        outputs = programs[name, memory](dataset.images, trace)
        accuracy = float((outputs.argmax(1) == dataset.labels).mean())
        if accuracy != THESIS_ACCURACY:
            raise SystemExit(f"{name} under {memory}: accuracy {accuracy}, not {THESIS_ACCURACY}")
        kernels, copies = trace.of("kernel"), trace.of("copy")
        moved = sum(event.bytes for event in copies)
        rows.add_row(
            name, memory, units.milliseconds(sample.median),
            units.digits(1e6 * sample.median / THESIS_IMAGES),
            units.milliseconds(busy_seconds(kernels)), units.milliseconds(busy_seconds(copies)),
            units.megabytes(moved), f"{accuracy:.4f}",
        )  # fmt: skip
        results.append(
            {
                "rung": name, "memory": memory, "images": THESIS_IMAGES, "batch": 1,
                "samples_seconds": list(sample.seconds), "kernel_seconds": busy_seconds(kernels),
                "copy_seconds": busy_seconds(copies), "copied_bytes": moved,
                "launches": len(kernels), "copies": len(copies), "accuracy": accuracy,
            }
        )  # fmt: skip
    screen.print(f"## The thesis's memory plans: {THESIS_IMAGES:,} images of cifar10, one by one\n")
    screen.print("```text")
    screen.print(rows)
    screen.print("```\n")
    screen.print(
        "Time: median of 3 turns without recording. Kernels and copies: from one recorded run, "
        "whose events\ninclude what a launch waits for the host."
    )
    return results


def _machine(facts: dict[str, Any]) -> str:
    libraries = [f"{name} {version}" for name, version in facts["libraries"].items()]
    gpus = [f"{gpu['name']} (driver {gpu['driver']})" for gpu in facts["gpus"]]
    return ", ".join([*(gpus or [facts["cpu"]]), *libraries])


def _turn(program: Program, images: Any) -> Any:
    return lambda: program(images)


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def _write(output: Path, document: dict[str, Any], text: io.StringIO) -> None:
    facts = document["environment"]
    head = (
        f"# The GPU ladder, {document['date']}\n\n`{document['command']}`, tilewright "
        f"{tilewright.__version__}, {_machine(facts)}\n\n"
    )
    with atomic_write(output.with_suffix(".json")) as file:
        file.write(json.dumps(document, indent=1).encode())
    with atomic_write(output.with_suffix(".md")) as file:
        file.write((head + text.getvalue()).encode())


if __name__ == "__main__":
    main()
