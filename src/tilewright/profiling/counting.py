"""A run under NVIDIA's ncu, for the GPU's own counters.

ncu runs each kernel several times over, and slows down all else: so a process of its own gets ready
for the run under it, and one batch is what is counted. Reading counters takes a permission of the
driver's; where it, or ncu, is lacking, that is what is said.
"""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from tilewright.job import Request, make_ready
from tilewright.profiling import stalls
from tilewright.profiling.counters import METRICS, TOOL, Counted, parse, refusal
from tilewright.runtime.device import Device
from tilewright.trace import Trace

USUAL = Path("/usr/local/cuda/bin/ncu")
SECONDS = 600


def counted(request: Request, device: Device) -> tuple[tuple[Counted, ...], str | None]:
    """What ncu counted, or why it did not."""
    if device.kind != "cuda":
        return (), f"they are NVIDIA's GPUs' own, for --device cuda; {device} has none"
    tool = shutil.which(TOOL) or (str(USUAL) if USUAL.is_file() else None)
    if tool is None:
        return (), f"{TOOL} (NVIDIA Nsight Compute, of the CUDA toolkit) is not on the PATH"
    few = min(request.images or request.batch, request.batch)
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "request"
        asked.write_bytes(pickle.dumps(replace(request, images=few)))
        command = [
            tool, "--csv", "--clock-control", "none", "--profile-from-start", "off",
            "--metrics", ",".join((*METRICS, *stalls.metrics(_capability(device)))),
            sys.executable, "-m", __name__, str(asked),
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return (), f"{TOOL} took more than {SECONDS} s"
    found = parse(done.stdout)
    return (found, None) if found else ((), refusal(done.stdout + done.stderr))


def _capability(device: Device) -> int:
    from tilewright.runtime import cuda

    return cuda.gpu(device.index).capability


def one_batch(request: Request) -> None:
    """The process under ncu: what gets ready for the batch is not counted."""
    from cuda.bindings import driver

    ready = make_ready(request, Trace())
    driver.cuProfilerStart()
    ready.program(ready.dataset.images)
    driver.cuProfilerStop()


if __name__ == "__main__":
    one_batch(pickle.loads(Path(sys.argv[1]).read_bytes()))
