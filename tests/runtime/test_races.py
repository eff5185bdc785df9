"""Oclgrind, a simulator, finds no race, divergent barrier, or access out of bounds or misaligned.

PoCL runs the threads of a block one after the other, and a GPU may be lucky: neither notices.
Oclgrind can also look for uninitialised values, but the version that pip has stops at an
instruction that its own compiler makes (`freeze`), and its check of API calls reports pyopencl's
questions about the device.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.runtime.simulate import BARRIERS, FAULTS, RUNGS
from tilewright.runtime import opencl

ROOT = Path(__file__).parents[2]
SIMULATOR = next(
    (
        f"opencl:{index}"
        for index, device in enumerate(opencl.devices() if not opencl.unusable() else [])
        if opencl.is_simulator(device)
    ),
    None,
)
# Oclgrind falls silent after so many findings: more than all faults together have.
WATCH = {
    "OCLGRIND_DATA_RACES": "1", "OCLGRIND_UNIFORM_WRITES": "1", "OCLGRIND_MAX_ERRORS": "100000",
}  # fmt: skip
pytestmark = [
    pytest.mark.skipif(SIMULATOR is None, reason="no Oclgrind: pyopencl[oclgrind]"),
    pytest.mark.xdist_group("Oclgrind"),  # one worker asks
]


@cache
def findings():
    """What is found in each of many runs, all in one process."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.simulate", SIMULATOR],
        cwd=ROOT, env=os.environ | WATCH, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout} {done.stderr}"
    return json.loads(done.stdout)


@pytest.mark.parametrize("rung", RUNGS)
def test_nothing_is_found_in_any_rung(rung):
    assert findings()["rungs"][rung] == ""


FOUND = {
    "race": "Read-write data race at local memory",
    "global race": "Write-write data race at global memory",
    "barrier in a branch": "Work-group divergence detected (barrier)",
    "return before a barrier": "Work-group divergence detected (barrier)",
    "out of bounds": "Invalid write of size 4 at global memory",
    "out of shared bounds": "Invalid write of size 4 at local memory",
    "misaligned load": "Invalid read of size 16 at local memory",
    "misaligned store": "Invalid write of size 16 at global memory",
    "aligned": "",
    "nothing": "",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(fault):
    text = findings()["faults"][fault]
    assert FOUND[fault] in text
    assert bool(text) == bool(FOUND[fault])


@pytest.mark.parametrize(("rung", "file", "number"), BARRIERS)
def test_every_barrier_is_needed_and_missed_when_it_is_gone(rung, file, number):
    assert "data race at local memory" in findings()["barriers"][f"{rung} {file} {number}"]


def test_no_barrier_is_forgotten_above():
    folder = ROOT / "src" / "tilewright" / "rungs" / "gpu"
    counted = {file.name: file.read_text().count("TW_BARRIER();") for file in folder.glob("*.cl")}
    named = {(file, number) for _, file, number in BARRIERS}
    assert len(named) == sum(counted.values())
