"""CPUs of every kind that is compiled for: code for them can be looked at on any machine."""

from __future__ import annotations

import llvmlite.binding as llvm
import pytest

from tilewright.fuse.cpu import build
from tilewright.fuse.cpu.build import Machine

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()

X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
MACHINES = {
    "avx512": Machine("skylake-avx512", "", "avx512", X86),
    "avx2": Machine("haswell", "", "avx2", X86),
    "avx": Machine("sandybridge", "", "avx", X86),
    "sse": Machine("x86-64", "", "sse", X86),
    "neon": Machine("cortex-a72", "", "neon", ARM),
}
TARGETS = {level: machine.target for level, machine in MACHINES.items()}


def runnable() -> dict[str, Machine]:
    """What this CPU can run: its own level, and those it can pretend to have nothing beyond."""
    found = (build.host(), *map(build.restricted, ("avx2", "avx", "sse")))
    return {machine.level: machine for machine in found}


ON_THIS_CPU = [
    pytest.param(
        level,
        marks=pytest.mark.skipif(level not in runnable(), reason=f"this CPU has no {level}"),
    )
    for level, machine in MACHINES.items()
    if build.is_arm(machine.triple) == build.is_arm()
]
