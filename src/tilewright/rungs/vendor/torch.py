"""`torch`: PyTorch's eager mode, oneDNN on the CPU and cuDNN on a GPU, layer after layer.

Tensors stay on the device from pixels to probabilities. On a GPU, TF32 is off: the rung claims
float32 and is verified as such.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tilewright.model.network import Parameters, Stage, Stages
from tilewright.precision import Precision
from tilewright.rungs.rung import Launch, Options, Rung, whole_network
from tilewright.runtime import Buffer, Runtime
from tilewright.runtime.device import Device
from tilewright.trace import moving

if TYPE_CHECKING:
    from torch import Tensor

    from tilewright.runtime.torch import TorchRuntime


def missing(device: Device) -> str | None:
    if find_spec("torch") is None:
        return "torch not installed: pip install 'tilewright[torch]'"
    if device.kind == "cuda":
        none = f"PyTorch {version('torch')} finds no CUDA GPU on this machine"
        if version("torch").endswith("+cpu"):  # it need not be asked, which takes seconds
            return none
        import torch

        if not torch.cuda.is_available():
            return none
        if device.index >= torch.cuda.device_count():
            return f"there are {torch.cuda.device_count()} CUDA GPUs, numbered from 0"
    return None


def open_runtime(device: Device, memory: str) -> Runtime:
    from tilewright.runtime.torch import TorchRuntime

    return TorchRuntime(device)


def prepare(
    runtime: TorchRuntime,
    stages: Stages,
    parameters: Parameters,
    options: Options,
    precision: Precision,
) -> Launch:
    import torch

    kernels = []
    for stage in stages:
        tensors = []
        for name in stage.parameter_shapes:
            with moving(runtime.trace, name):
                tensors.append(runtime.upload(parameters[name].copy()))
        function = layer_function(stage, *tensors)
        kernels.append((stage, runtime.build(f"torch_{stage.kind}", function)))
    before = (stages[0].sources or (-1,))[0]
    last = {source: stage.index for stage in stages for source in stage.sources}

    def launch(x: Buffer, out: Buffer, *others: Buffer) -> None:
        assert isinstance(x, torch.Tensor) and isinstance(out, torch.Tensor)
        made = {before: x}
        for stage, kernel in kernels:
            sources = stage.sources or (before,)
            taken = [made[index] for index in sources]
            for index in set(sources):
                if last.get(index) == stage.index:
                    del made[index]  # so that its memory is used again
            made[stage.index] = runtime.launch(kernel, *taken, layers=(stage.name,))
        out.copy_(made[stages[-1].index])

    return launch


def layer_function(stage: Stage, *parameters: Tensor) -> Callable[..., Tensor]:
    """A layer as PyTorch computes it, on tensors of any device."""
    return stage.layer.torch(*parameters)


RUNG = Rung(
    name="torch",
    idea="PyTorch eager: the framework's own kernels (oneDNN, cuDNN), layer after layer",
    devices=("cpu", "cuda"),
    prepare=prepare,
    open_runtime=open_runtime,
    form="torch",
    cut=whole_network,  # PyTorch makes the tensors between the layers itself
    missing=missing,
    vendor=True,
    memories=("resident",),  # on the CPU nothing has to travel
)
