"""Run in a process of its own, on Oclgrind: rungs on small networks, and planted faults.

What Oclgrind finds it writes to standard error; a run that is right writes nothing there. Starting
takes longer than most of what is looked at, so one process looks at all, each with an answer of its
own: `python -m tests.runtime.simulate opencl:1`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import partial

import numpy as np

from tests.rungs.gpu.kernels import GPU_RUNGS
from tilewright.execute import program_of
from tilewright.model.layers import (
    AveragePool,
    Convolution,
    Flatten,
    FullyConnected,
    MaxPool,
    Pixels,
    ReLU,
    Softmax,
    Tanh,
)
from tilewright.model.network import Network
from tilewright.rungs import find
from tilewright.rungs.gpu import design
from tilewright.runtime import dialect
from tilewright.runtime.device import Device
from tilewright.runtime.dialect import Source
from tilewright.runtime.opencl_runtime import OpenClRuntime
from tilewright.truth import reference
from tilewright.truth.attempt import compare
from tilewright.truth.trials import random_parameters

# Tiles that are full and tiles that are not; a row of four for vector stores; more channels, taps
# and inputs than are staged at a time.
CONVOLUTIONS = (
    Network(
        "convolutions", Pixels((3, 7, 8)),
        (Convolution(5, 3, padding=1), Convolution(6, (2, 1), stride=(1, 2), bias=False)),
    ),
    Network("one", Pixels((1, 1, 1)), (Convolution(1, 1),)),
    Network("whole image", Pixels((2, 5, 4)), (Convolution(17, (5, 4)),)),
    Network("many channels", Pixels((18, 3, 3)), (Convolution(3, 2),)),
)  # fmt: skip
# These are the same in all rungs.
OTHERS = (
    Network(
        "every other kind", Pixels((3, 6, 8)),
        (ReLU(), MaxPool(2), Tanh(), AveragePool((1, 2), stride=1), Flatten(), FullyConnected(3),
         Softmax()),
    ),
    Network("dense", Pixels((2, 3, 3)), (FullyConnected(17),)),
)  # fmt: skip
SEVERAL = ("convolutions", "every other kind", "dense")
# Small, and miss each of the barriers of a file: products are staged by taps, others by channels.
DEEP = Network("deep", Pixels((18, 3, 3)), (Convolution(5, 2),))
STAGED = {
    "fc.cl": Network("long", Pixels((20, 1, 1)), (FullyConnected(2),)),
    "gemm.cl": Network("few", Pixels((5, 3, 3)), (Convolution(5, 2),)),
}
RUNGS = [rung.name for rung in GPU_RUNGS]
FIRST = RUNGS[0]
# Every barrier of every kernel, with a rung that uses it.
BARRIERS = [
    *(("direct-reduce", "reduce.cl", 1), ("shared", "shared.cl", 1), ("shared", "shared.cl", 2)),
    *(("fused-gemm", "gemm.cl", 1), ("unroll-gemm", "gemm.cl", 2)),
    *(("tuned", "tuned.cl", 1), ("tuned", "tuned.cl", 2)),
    *(("direct", "fc.cl", 1), ("direct", "fc.cl", 2)),
]

# CUDA's vectors must lie on multiples of 16 bytes, OpenCL's need not: here one that does not is
# looked for far beyond its buffer, where Oclgrind sees it.
ALIGNED = "((ulong)(pointer) % 16 ? 1 << 28 : 0)"

FAULTS = {
    "race": "TW_SHARED float s[8]; s[i] = i; out[i] = s[(i + 1) % 8];",
    "global race": "out[0] = i;",
    "barrier in a branch": "if (i < 3) TW_BARRIER(); out[i] = i;",
    "return before a barrier": "if (i < 3) return; TW_BARRIER(); out[i] = i;",
    "out of bounds": "out[i + 1] = 1;",
    "out of shared bounds": "TW_SHARED float s[8]; s[i + 1] = i; TW_BARRIER(); out[i] = s[i + 1];",
    "misaligned load": "TW_SHARED float s[12]; s[i] = i; if (i < 4) s[i + 8] = i; TW_BARRIER();"
    " out[i] = TW_LOAD4(s + 2).x;",
    "misaligned store": "if (i == 0) TW_STORE4(TW_FLOAT4(0, 0, 0, 0), out + 1);",
    "aligned": "if (i == 0) TW_STORE4(TW_LOAD4(out), out + 4);",
    "nothing": "TW_SHARED float s[8]; s[i] = i; TW_BARRIER(); out[i] = s[(i + 1) % 8];",
}


def align_strictly() -> None:
    text = dialect.prelude()
    for loose in ("vload4(0, pointer)", "vstore4(value, 0, pointer)"):
        assert loose in text
        text = text.replace(loose, loose.replace("0, pointer", f"{ALIGNED}, pointer"))
    dialect.prelude = lambda: text


def run_network(network: Network, rung: str, device: Device, images: int) -> str | None:
    """What is wrong with the outputs of a network."""
    generator = np.random.default_rng(1)
    ready = network.with_parameters(random_parameters(network, generator))
    pixels = generator.integers(0, 256, (images, *network.input.shape), np.uint8)
    program = program_of(ready, find(rung), device, images)
    truth = reference.chain(ready.stages, ready.parameters, pixels, find(rung).precision)[-1]
    return compare(program(pixels), truth)[1]


def run_rung(name: str, device: Device) -> None:
    for network in CONVOLUTIONS + OTHERS if name == FIRST else CONVOLUTIONS:
        # A second image shows with any of them.
        problem = run_network(network, name, device, images=2 if network.name in SEVERAL else 1)
        assert problem is None, problem


def run_without_barrier(which: str, device: Device) -> None:
    """A rung whose kernels lack one barrier, `rung file number`."""
    rung, file, number = which.split()
    original = design.text_of
    pieces = original(file).split("TW_BARRIER();")
    changed = "TW_BARRIER();".join(pieces[: int(number)]) + "TW_BARRIER();".join(
        pieces[int(number) :]
    )
    design.text_of = lambda name: changed if name == file else original(name)
    run_network(STAGED.get(file, DEEP), rung, device, images=1)


def run_fault(name: str, device: Device) -> None:
    text = f"TW_ENTRY TW_NAME(TW_GLOBAL float *out) {{ const int i = TW_THREAD_X; {FAULTS[name]} }}"
    runtime = OpenClRuntime(device)
    out = runtime.upload(np.zeros(8, np.float32))
    runtime.enqueue(runtime.compile(Source("faulty", text, (8, 1, 1), ())), (1, 1, 1), [out], ())
    runtime.synchronise()


def main(device: Device) -> dict[str, dict[str, str]]:
    """What is found in each of the planted faults, without each of the barriers, in each rung."""
    align_strictly()
    barriers = [" ".join(map(str, each)) for each in BARRIERS]
    # Oclgrind falls silent after some findings: each has a process that has begun with nothing but
    # imports. In rungs nothing is found, and they share what is compiled.
    return {
        "faults": {name: heard(run_fault, name, device, apart=True) for name in FAULTS},
        "barriers": {
            name: heard(run_without_barrier, name, device, apart=True) for name in barriers
        },
        "rungs": {name: heard(run_rung, name, device, apart=False) for name in RUNGS},
    }


def heard(run: Callable[[str, Device], None], name: str, device: Device, apart: bool) -> str:
    """What is written to standard error meanwhile, by a child process if it is to be `apart`."""
    with tempfile.TemporaryFile("w+") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
        if not apart:
            said(partial(run, name, device))
        elif child := os.fork():
            os.waitpid(child, 0)
        else:
            said(partial(run, name, device))
            os._exit(0)
        file.seek(0)
        return file.read()


def said(run: Callable[[], None]) -> None:
    """Errors of ours are findings, too."""
    try:
        run()
    except BaseException:
        traceback.print_exc()


if __name__ == "__main__":
    print(json.dumps(main(Device.parse(sys.argv[1]))))
