"""Run in a process of its own, on Oclgrind: a rung on small networks, or with a planted fault.

What Oclgrind finds it writes to standard error; a run that is right writes nothing there.
"""

from __future__ import annotations

import sys

import numpy as np

from tilewright import reference
from tilewright.attempt import compare
from tilewright.execute import program_of
from tilewright.ladder import find
from tilewright.ladder.gpu import design
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
from tilewright.runtime import dialect
from tilewright.runtime.device import Device
from tilewright.runtime.dialect import Source
from tilewright.runtime.opencl import OpenClRuntime
from tilewright.trials import random_parameters

# Every kind of layer; tiles that are full and tiles that are not; a row of four for vector stores;
# more channels, taps and inputs than are staged at a time.
NETWORKS = (
    Network(
        "every kind", Pixels((3, 7, 8)),
        (Convolution(5, 3, padding=1), ReLU(), MaxPool(2), Tanh(),
         Convolution(6, (2, 1), stride=(1, 2), bias=False), AveragePool((1, 2), stride=1),
         Flatten(), FullyConnected(3), Softmax()),
    ),
    Network("one", Pixels((1, 1, 1)), (Convolution(1, 1),)),
    Network("whole image", Pixels((2, 5, 4)), (Convolution(17, (5, 4)),)),
    Network("deep", Pixels((18, 3, 3)), (Convolution(3, 2), FullyConnected(2))),
    Network("dense", Pixels((2, 3, 3)), (FullyConnected(17),)),
)  # fmt: skip
IMAGES, BATCH = 3, 2

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


def run_rung(name: str, device: Device) -> None:
    for network in NETWORKS:
        generator = np.random.default_rng(1)
        ready = network.with_parameters(random_parameters(network, generator))
        pixels = generator.integers(0, 256, (IMAGES, *network.input.shape), np.uint8)
        program = program_of(ready, find(name), device, BATCH)
        truth = reference.chain(ready.stages, ready.parameters, pixels, find(name).precision)[-1]
        _, problem = compare(program(pixels), truth)
        assert problem is None, problem


def run_without_barrier(which: str, device: Device) -> None:
    """A rung whose kernels lack one barrier: `rung file number`."""
    rung, file, number = which.split()
    pieces = design._text(file).split("TW_BARRIER();")
    changed = "TW_BARRIER();".join(pieces[: int(number)]) + "TW_BARRIER();".join(
        pieces[int(number) :]
    )
    original = design._text
    design._text = lambda name: changed if name == file else original(name)
    run_rung(rung, device)


def run_fault(name: str, device: Device) -> None:
    text = f"TW_ENTRY TW_NAME(TW_GLOBAL float *out) {{ const int i = TW_THREAD_X; {FAULTS[name]} }}"
    runtime = OpenClRuntime(device)
    out = runtime.upload(np.zeros(8, np.float32))
    runtime.enqueue(runtime.compile(Source("faulty", text, (8, 1, 1), ())), (1, 1, 1), [out], ())
    runtime.synchronise()


if __name__ == "__main__":
    what, name, device = sys.argv[1:]
    align_strictly()
    run = {"rung": run_rung, "fault": run_fault, "without": run_without_barrier}[what]
    run(name, Device.parse(device))
