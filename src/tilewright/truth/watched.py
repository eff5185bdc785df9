"""A kernel file's kernels on tiny layers, in a process that a simulator or a sanitizer watches.

python -m tilewright.truth.watched FILE DEVICE
"""

from __future__ import annotations

import sys

import numpy as np

from tilewright.execute import Program
from tilewright.model.layers import Convolution, Pixels
from tilewright.model.network import Network
from tilewright.plan import uniform
from tilewright.rungs.own import load
from tilewright.runtime.device import Device
from tilewright.runtime.dialect import DoesNotFit
from tilewright.truth.trials import random_parameters

# Tiles that are full and that are not, padding, strides; tiny: each thread takes milliseconds.
LAYERS = (
    Network("padded", Pixels((2, 6, 5)), (Convolution(3, 3, padding=1),)),
    Network("strided", Pixels((3, 7, 8)), (Convolution(4, (2, 3), stride=(2, 1), bias=False),)),
)
IMAGES = 2  # at a time: one may write where the other does
DONE = "all layers are computed"


def main(path: str, device_name: str) -> None:
    rung, device = load(path), Device.parse(device_name)
    if device.kind == "cuda":
        _own_allocations()
    for network in LAYERS:
        generator = np.random.default_rng(1)
        ready = network.with_parameters(random_parameters(network, generator))
        pixels = generator.integers(0, 256, (IMAGES, *network.input.shape), np.uint8)
        try:
            Program(ready, uniform(ready, rung, device, IMAGES), {rung.name: rung})(pixels)
        except DoesNotFit:
            continue  # the file is not for such layers
    print(DONE, flush=True)


def _own_allocations() -> None:
    """Each buffer is an allocation of the driver's, not a piece of a pool: its ends are known."""
    import cupy

    cupy.cuda.set_allocator(None)


if __name__ == "__main__":
    main(*sys.argv[1:])
