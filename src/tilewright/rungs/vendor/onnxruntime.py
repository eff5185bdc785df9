"""`onnxruntime`: the whole network in ONNX Runtime (MLAS kernels), on all cores.

The network becomes an ONNX graph, which the library optimises as it likes (it fuses a
convolution with its activation and reorders channels into blocks), so there are no times for
single layers: they no longer exist. The pixels are normalised by NumPy before.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from tilewright.environment import cpu_cores
from tilewright.model.formats.onnx_export import onnx_model
from tilewright.model.layers import Pixels
from tilewright.model.network import Parameters, Stages
from tilewright.model.pixels import normalise
from tilewright.precision import FLOAT32, Precision
from tilewright.rungs.rung import Launch, Options, Rung, input_then_network, launch_of
from tilewright.runtime import Buffer, FunctionRuntime
from tilewright.runtime.cpu import open_runtime
from tilewright.runtime.device import Device
from tilewright.runtime.dialect import DoesNotFit

# MLAS promises no accuracy for its tanh: over every third float32 up to 10, release 1.31.1 was off
# by up to 5.46 ulp (at 8.4755, 2026-11-15), where 5 are allowed to everyone else.
# Its logistic function is off by up to 1.6e-7 for values of any size (a million from -120 to 120).
PRECISION = replace(FLOAT32, tanh_ulp=6, sigmoid_error=2.0**-22)


def missing(device: Device) -> str | None:
    lacking = [name for name in ("onnxruntime", "onnx") if find_spec(name) is None]
    if not lacking:
        return None
    return f"{' and '.join(lacking)} not installed: pip install 'tilewright[onnxruntime]'"


def prepare(
    runtime: FunctionRuntime,
    stages: Stages,
    parameters: Parameters,
    options: Options,
    precision: Precision,
) -> Launch:
    if isinstance(stages[0].layer, Pixels):
        return launch_of(runtime, "normalise", stages, normalise(stages[0].layer))

    layers = tuple(stage.name for stage in stages)
    model = onnx_model(stages, parameters)
    try:
        session = _session(model)
    except Exception as error:  # of a class of its own, with a page of words
        said = " ".join(str(error).split())
        raise DoesNotFit(f"ONNX Runtime refuses the network: {said:.200}") from error
    kernel = runtime.build("onnxruntime_network", session.run)

    def launch(x: Buffer, out: Buffer, *others: Buffer) -> None:
        (result,) = runtime.launch(kernel, None, {"x": x}, layers=layers)
        assert isinstance(out, np.ndarray)
        np.copyto(out, result)

    return launch


def _session(model: bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cpu_cores()
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


RUNG = Rung(
    name="onnxruntime",
    idea="ONNX Runtime's own kernels (MLAS), the whole network at once",
    devices=("cpu",),
    prepare=prepare,
    open_runtime=open_runtime,
    form="onnx",
    cut=input_then_network,
    missing=missing,
    vendor=True,
    precision=PRECISION,
)
