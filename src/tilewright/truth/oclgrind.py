"""What Oclgrind finds in a kernel file: a simulator of OpenCL devices.

It interprets the file's kernels, instruction by instruction, in a process of its own, and says on
standard error what it finds. None of the file's code becomes machine code there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tilewright.rungs.own.includes import whole
from tilewright.runtime.dialect import Part
from tilewright.truth.findings import MOST, Finding, Sanitized, lines_of

WATCH = {"OCLGRIND_DATA_RACES": "1", "OCLGRIND_UNIFORM_WRITES": "1", "OCLGRIND_MAX_ERRORS": "100"}
SECONDS = 120
MEANINGS = {
    "Read-write data race": "one thread reads what another writes, and nothing makes them wait",
    "Write-write data race": "two threads write to the same place",
    "Work-group divergence": "a barrier that not all threads of a block reach",
    "Invalid read": "reads outside",
    "Invalid write": "writes outside",
}
FINDING = re.compile(rf"({'|'.join(MEANINGS)})(.*)")
AT_LINE = re.compile(r"\s*At line (\d+) \(column \d+\) of (\S+):")
LOOKS_FOR = "no race, no divergent barrier, nothing outside"


def sanitize(path: Path) -> Sanitized:
    """Simulate the file's kernels."""
    from tilewright.runtime import opencl

    found = partial(Sanitized, "Oclgrind", LOOKS_FOR)
    if path.suffix == ".cu":
        return found(problem="Oclgrind takes OpenCL C and the dialect, not CUDA C")
    if reason := opencl.unusable():
        return found(problem=reason)
    simulators = [i for i, each in enumerate(opencl.devices()) if opencl.is_simulator(each)]
    if not simulators:
        return found(problem="no Oclgrind: pip install 'pyopencl[oclgrind]'")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tilewright.truth.watched", path, f"opencl:{simulators[0]}"],
            env=os.environ | WATCH, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return found(problem=f"it took longer than {SECONDS} s")
    findings = tuple(dict.fromkeys(_findings(done.stderr, *whole(path))))
    if done.returncode and not findings:
        last = (done.stderr.strip() or "no reason given").split("\n")[-1]
        return found(problem=f"the simulator gave up: {last[:200]}")
    return found(findings[:MOST])


def _findings(said: str, text: str, parts: tuple[Part, ...]) -> Iterator[Finding]:
    """Each begins with what it is; addresses and threads are left out, so that few remain."""
    for block in re.split(r"\n(?=\S)", said):
        head = FINDING.match(block)
        if head is None:
            continue
        where = " in shared memory" if "local memory" in head[2] else ""
        lines = lines_of(text, parts, (int(line) for line, _ in AT_LINE.findall(block)))
        yield Finding(f"{head[1].lower()}{where}: {MEANINGS[head[1]]}", lines)
