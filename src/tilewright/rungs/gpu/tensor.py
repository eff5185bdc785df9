"""`tensor`: convolutions as products on tensor cores, a layer at a time.

The fused GEMM of `fused-gemm`, with the unrolled matrix never built: an image's values lie in
shared memory channels last, so that a row of taps is a run of words, and operands are read from
there as the tensor cores want them (`tilewright.fuse.cuda`). Values are rounded to fp16 or TF32 on
their way in, or split into two numbers of TF32; sums stay float32. It should win by as much as
layers are limited by arithmetic; every layer still reads its input from device memory and writes
its output there.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.errors import TilewrightError
from tilewright.memory import DEVICE_PLANS
from tilewright.model.layers import Convolution
from tilewright.model.network import Parameters, Stages
from tilewright.precision import FP16, TF32, TF32X3, Precision
from tilewright.rungs.gpu.generated import generated, generated_candidates, generated_plan
from tilewright.rungs.gpu.layers import other_layer
from tilewright.rungs.gpu.prepare import GpuLaunch, missing, open_runtime
from tilewright.rungs.rung import Launch, Options, Rung
from tilewright.runtime.cuda import CudaRuntime
from tilewright.runtime.device import Device


def plan(device: Device, stages: Stages, precision: Precision) -> Options:
    (stage,) = stages
    return generated_plan(device, stages, precision) if stage.kind == "conv" else {}


def candidates(device: Device, stages: Stages, precision: Precision) -> Iterable[Options]:
    (stage,) = stages
    return generated_candidates(device, stages, precision) if stage.kind == "conv" else ()


def prepare(
    runtime: CudaRuntime,
    stages: Stages,
    parameters: Parameters,
    options: Options,
    precision: Precision,
) -> Launch:
    (stage,) = stages
    if type(stage.layer) is not Convolution:
        if options:
            raise TilewrightError(f"{stage.name}: there are no options for this layer")
        return GpuLaunch(runtime, stage, other_layer(stage), parameters)
    return generated("tensor", runtime, stages, parameters, options, precision)


RUNG = Rung(
    name="tensor",
    idea="the fused product on tensor cores, which multiply small matrices in one instruction",
    against="fused-gemm",
    devices=("cuda",),
    plan=plan,
    candidates=candidates,
    prepare=prepare,
    open_runtime=open_runtime,
    form="dialect",
    missing=missing,
    precision=FP16,
    precisions=(FP16, TF32, TF32X3),
    memories=DEVICE_PLANS,
)
