"""Networks on an ARM CPU that is not there: linked with a small driver, run by qemu."""

from __future__ import annotations

import math
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.fuse.cpu.machines import MACHINES
from tilewright.fuse.cpu import build, tickets
from tilewright.fuse.cpu.few import phases
from tilewright.fuse.cpu.parameters import layout, pack
from tilewright.fuse.cpu.schedule import Schedule
from tilewright.model.network import Network

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
PACKAGES = {COMPILER: "gcc-aarch64-linux-gnu", EMULATOR: "qemu-user"}
MISSING = [package for program, package in PACKAGES.items() if shutil.which(program) is None]
needs_arm = pytest.mark.skipif(
    bool(MISSING), reason=f"no ARM code can be run without Debian's {' and '.join(MISSING)}"
)


class Arm:
    """The driver, compiled once; programs and what they read and write are left in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.programs = folder, 0
        self.driver = folder / "driver.o"
        source = Path(__file__).with_name("driver.c")
        _do(COMPILER, "-O1", "-Wall", "-Werror", "-c", source, "-o", self.driver)
        self.tickets = folder / "tickets.o"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tickets, "is_arm", lambda: True)
            self.tickets.write_bytes(build.object_code(tickets._code(), MACHINES["neon"]))

    def program(self, network: Network, plan: Schedule) -> Program:
        """A network by a schedule, ready to be run."""
        on = MACHINES["neon"]
        self.programs += 1
        base = self.folder / f"{self.programs}"
        code = base.with_suffix(".o")
        code.write_bytes(build.object_code(build.module_code(network, on, plan), on))
        _do(COMPILER, "-static", "-pthread", self.driver, code, self.tickets, "-o", base)
        pack(plan, network.parameters).tofile(base.with_suffix(".weights"))
        return Program(base, network, plan)


class Program:
    def __init__(self, path: Path, network: Network, plan: Schedule) -> None:
        self.path, self.network, self.plan = path, network, plan

    def run(
        self, images: NDArray[np.generic], by_phases: bool = False, helpers: int = 0
    ) -> NDArray[np.float32]:
        """The outputs of a batch.

        A schedule for few images can be done phase by phase, also by threads that take tickets.
        """
        path, network, plan = self.path, self.network, self.plan
        given, result = path.with_suffix(".images"), path.with_suffix(".out")
        np.ascontiguousarray(images).tofile(given)
        sizes = [len(images), math.prod(network.input.shape), math.prod(network.output_shape)]
        memory = layout(plan)
        sizes += [memory.slot, memory.size, len(plan.groups) + 1, helpers]
        for phase in phases(plan) if by_phases else ():
            sizes += [phase.units, phase.step]
        suffix = "u8" if images.dtype == np.uint8 else "f32"
        _do(EMULATOR, path, suffix, given, path.with_suffix(".weights"), result, *sizes)
        return np.fromfile(result, np.float32).reshape(len(images), *network.output_shape)


def _do(*words: object) -> None:
    done = subprocess.run([*map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, f"{words[0]} ended with {done.returncode}: {done.stderr}"
