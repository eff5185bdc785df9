"""Compiled networks for those who serve: called on batches where they lie, from many threads.

`compiled.py` has the contract, `host.py` what arrays of the host's memory are, and each device a
module: `cpu.py`, `opencl.py` and `cuda.py`. A call on a GPU's memory is short. Whoever's array it
is, a few questions tell all of it (`gpu_arrays.py`; `of_torch.py`, `of_cupy.py`, `adopted.py` and
`exchanged.py`). What launches take is made ready once for a size of batch (`launches.py`), in
memory that no other call works in (`lanes.py`), and goes to CUDA's driver (`driver.py`) by machine
code (`machine_code.py`): all of it at once (`at_once.py`; for arrays of the host between two
copies, `through.py` and `passage.py`). A call like the last one is known again (`asked.py`), and
without a question from Python where a library can do without (`again.py`).
"""

from __future__ import annotations

from typing import assert_never

from tilewright.errors import TilewrightError
from tilewright.model.network import Network
from tilewright.rungs import choose
from tilewright.runtime.device import Device
from tilewright.serving.compiled import Compiled


def compile_for(
    network: Network, device: Device, precision: str | None, batch: int | None, trial: bool = False
) -> Compiled:
    """The network with its weights, ready on a device; `batch` is the largest, if there is one.

    `trial`: what is estimated to be fastest is timed first (CUDA).
    """
    if batch is not None and (not isinstance(batch, int) or isinstance(batch, bool) or batch < 1):
        raise TilewrightError(f"batch={batch!r:.40}: a batch has at least 1 image, a whole number")
    if trial and device.kind != "cuda":
        raise TilewrightError(
            f"trial=True: on {device} nothing is timed when a network is compiled; "
            f"`tilewright tune --device {device}` does"
        )
    match device.kind:
        case "cpu":
            from tilewright.serving.cpu import CpuCompiled

            return CpuCompiled(network, device, choose(device, "fused", precision), batch)
        case "opencl":
            from tilewright.serving.opencl import OpenClCompiled

            return OpenClCompiled(network, device, choose(device, None, precision), batch)
        case "cuda":
            from tilewright.serving.cuda import compiled_for_cuda

            rung = choose(device, "network", precision)
            return compiled_for_cuda(network, device, rung, batch, trial)
    assert_never(device.kind)
