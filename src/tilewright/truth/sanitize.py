"""What a simulator finds in a kernel file: races, divergent barriers, accesses out of bounds.

PoCL runs the threads of a block one after the other, and a GPU may be lucky: neither notices.
Oclgrind interprets the file's kernels, instruction by instruction, on tiny layers in a process of
its own, and says on standard error what it finds, at the file's own lines. None of the file's code
becomes machine code there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tilewright.model.layers import Convolution, Pixels
from tilewright.model.network import Network

# Tiles that are full and that are not, padding, strides; tiny: each thread takes milliseconds.
LAYERS = (
    Network("padded", Pixels((2, 6, 5)), (Convolution(3, 3, padding=1),)),
    Network("strided", Pixels((3, 7, 8)), (Convolution(4, (2, 3), stride=(2, 1), bias=False),)),
)
BATCH, IMAGES = 2, 3
WATCH = {"OCLGRIND_DATA_RACES": "1", "OCLGRIND_UNIFORM_WRITES": "1", "OCLGRIND_MAX_ERRORS": "100"}
SECONDS = 120
MOST = 8  # findings that are shown
MEANINGS = {
    "Read-write data race": "one thread reads what another writes, and nothing makes them wait",
    "Write-write data race": "two threads write to the same place",
    "Work-group divergence": "a barrier that not all threads of a block reach",
    "Invalid read": "reads outside",
    "Invalid write": "writes outside",
}
FINDING = re.compile(rf"({'|'.join(MEANINGS)})(.*)")
AT_LINE = re.compile(r"\s*At line (\d+) \(column \d+\) of (\S+):")


@dataclass(frozen=True)
class Finding:
    """One thing, and the lines of the file that take part in it, with their text."""

    text: str
    lines: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Sanitized:
    """What was found; `problem` is why nothing could be simulated."""

    findings: tuple[Finding, ...] = ()
    problem: str = ""


def sanitize(path: Path) -> Sanitized:
    """Simulate the file's kernels."""
    from tilewright.runtime import opencl

    if path.suffix == ".cu":
        return Sanitized(problem="Oclgrind takes OpenCL C and the dialect, not CUDA C")
    if reason := opencl.unusable():
        return Sanitized(problem=reason)
    simulators = [i for i, each in enumerate(opencl.devices()) if opencl.is_simulator(each)]
    if not simulators:
        return Sanitized(problem="no Oclgrind: pip install 'pyopencl[oclgrind]'")
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__, str(path), f"opencl:{simulators[0]}"],
            env=os.environ | WATCH, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Sanitized(problem=f"it took longer than {SECONDS} s")
    found = tuple(dict.fromkeys(_findings(done.stderr, path.read_text().split("\n"))))
    if done.returncode and not found:
        last = (done.stderr.strip() or "no reason given").split("\n")[-1]
        return Sanitized(problem=f"the simulator gave up: {last[:200]}")
    return Sanitized(found[:MOST])


def _findings(said: str, source: list[str]) -> Iterator[Finding]:
    """Each begins with what it is; addresses and threads are left out, so that few remain."""
    for block in re.split(r"\n(?=\S)", said):
        head = FINDING.match(block)
        if head is None:
            continue
        where = " in shared memory" if "local memory" in head[2] else ""
        numbers = dict.fromkeys(int(line) for line, _ in AT_LINE.findall(block))
        lines = tuple((line, source[line - 1].strip()) for line in numbers if line <= len(source))
        yield Finding(f"{head[1].lower()}{where}: {MEANINGS[head[1]]}", lines)


def simulate(path: str, device_name: str) -> None:
    """In the process of its own."""
    import numpy as np

    from tilewright.execute import Program
    from tilewright.plan import uniform
    from tilewright.rungs.own import load
    from tilewright.runtime.device import Device
    from tilewright.runtime.dialect import DoesNotFit
    from tilewright.truth.trials import random_parameters

    rung, device = load(path), Device.parse(device_name)
    for network in LAYERS:
        generator = np.random.default_rng(1)
        ready = network.with_parameters(random_parameters(network, generator))
        pixels = generator.integers(0, 256, (IMAGES, *network.input.shape), np.uint8)
        try:
            Program(ready, uniform(ready, rung, device, BATCH), {rung.name: rung})(pixels)
        except DoesNotFit:
            continue  # the file is not for such layers


if __name__ == "__main__":
    simulate(*sys.argv[1:])
