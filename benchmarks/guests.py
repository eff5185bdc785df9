"""Libraries on a GPU that are not rungs of the ladder: guests in a benchmark, timed but not proven.

They run on PyTorch's runtime, from pixels that are on the device to outputs that are there: the
same work as a rung under the `resident` memory plan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from tilewright.model.layers import AveragePool, Convolution, Pixels, Pooling
from tilewright.model.network import Network, Parameters, Stages
from tilewright.precision import Precision
from tilewright.rungs.rung import Launch, Options, Rung, whole_network
from tilewright.rungs.vendor import torch as vendor
from tilewright.runtime import FunctionRuntime

Forward = Callable[[Any], Any]


def guest(name: str, idea: str, forward: Callable[[Stages, Parameters, Any], Forward]) -> Rung:
    """A rung that computes the network as one function of a tensor."""

    def prepare(
        runtime: FunctionRuntime,
        stages: Stages,
        parameters: Parameters,
        options: Options,
        precision: Precision,
    ) -> Launch:
        function = forward(stages, parameters, runtime)
        kernel = runtime.build(name, function)
        layers = tuple(stage.name for stage in stages)

        def launch(x: Any, out: Any) -> None:
            out.copy_(runtime.launch(kernel, x, layers=layers))

        return launch

    return Rung(
        name=name, idea=idea, devices=("cuda",), prepare=prepare, cut=whole_network, vendor=True,
        open_runtime=vendor.open_runtime, missing=vendor.missing, memories=("resident",),
    )  # fmt: skip


def eager(stages: Stages, parameters: Parameters, runtime: Any) -> Forward:
    """PyTorch's kernels one after the other."""
    functions = []
    for stage in stages:
        tensors = [runtime.upload(parameters[name].copy()) for name in stage.parameter_shapes]
        functions.append(vendor.layer_function(stage, *tensors))

    def forward(x: Any) -> Any:
        for function in functions:
            x = function(x)
        return x

    return forward


def with_tf32(stages: Stages, parameters: Parameters, runtime: Any) -> Forward:
    import torch

    forward = eager(stages, parameters, runtime)

    def switched(x: Any) -> Any:
        # The switch is the process's, and the other engines want it off.
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
        try:
            return forward(x)
        finally:
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False

    return switched


def compiled(stages: Stages, parameters: Parameters, runtime: Any) -> Forward:
    import torch

    # Each network and each convolution on its own is another version of the same function.
    torch._dynamo.config.recompile_limit = 100
    return torch.compile(eager(stages, parameters, runtime), dynamic=False)


def jax_function(stages: Stages, parameters: Parameters, dtype: str) -> Forward:
    """XLA's program for the layers, on arrays of such a type."""
    import jax
    from jax import lax
    from jax import numpy as jnp

    given = {name: jnp.asarray(np.array(value), dtype) for name, value in parameters.items()}

    def pool(x: Any, layer: Pooling) -> Any:
        window, strides = (1, 1, *layer.size), (1, 1, *layer.stride)
        if isinstance(layer, AveragePool):
            zero = np.zeros((), dtype)[()]
            total = lax.reduce_window(x, zero, lax.add, window, strides, "VALID")
            return total / (layer.size[0] * layer.size[1])
        return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, "VALID")

    def network(x: Any) -> Any:
        for stage in stages:
            layer = stage.layer
            if isinstance(layer, Pixels):
                x = x.astype(dtype) * layer.scale + layer.shift if x.dtype == jnp.uint8 else x
            elif isinstance(layer, Convolution):
                top, left, bottom, right = layer.padding
                padding = [(top, bottom), (left, right)]
                x = lax.conv_general_dilated(
                    x, given[f"{stage.name}.weight"], layer.stride, padding
                )
                if layer.bias:
                    x = x + given[f"{stage.name}.bias"][None, :, None, None]
            elif isinstance(layer, Pooling):
                x = pool(x, layer)
            elif stage.kind == "fc":
                x = x.reshape(len(x), -1) @ given[f"{stage.name}.weight"].T
                if f"{stage.name}.bias" in given:
                    x = x + given[f"{stage.name}.bias"]
            elif stage.kind == "flatten":
                x = x.reshape(len(x), -1)
            else:
                functions = {"relu": jax.nn.relu, "tanh": jnp.tanh, "softmax": jax.nn.softmax}
                x = functions[stage.kind](x)
        return x

    return cast(Forward, jax.jit(network))


def jax_network(network: Network, precision: str) -> Callable[[Any], Callable[[], Any]]:
    """The network on a tensor of normalised pixels: a call that waits until it is done."""
    import jax
    import torch

    dtype = "float16" if precision == "fp16" else "float32"
    run = jax_function(network.stages[1:], network.parameters, dtype)
    products = {"tf32": "tensorfloat32", "fp16": "default"}.get(precision, "highest")

    def on(x: Any) -> Callable[[], Any]:
        torch.cuda.synchronize()
        array = jax.dlpack.from_dlpack(x.contiguous())

        def call() -> Any:
            with jax.default_matmul_precision(products):
                return run(array).block_until_ready()

        return call

    return on


def jax(stages: Stages, parameters: Parameters, runtime: Any) -> Forward:
    """XLA's program for the network, in full float32; tensors are passed without copying."""
    import jax
    import torch

    run = jax_function(stages, parameters, "float32")

    def forward(x: Any) -> Any:
        torch.cuda.current_stream().synchronize()  # the two libraries have streams of their own
        with jax.default_matmul_precision("highest"):
            result = run(jax.dlpack.from_dlpack(x.contiguous()))
        return torch.from_dlpack(result.block_until_ready())

    return forward


def guests(with_jax: bool) -> list[Rung]:
    """PyTorch's, and JAX's if it is wanted."""
    found = [
        guest("torch-tf32", "PyTorch eager, operands rounded to TF32", with_tf32),
        guest("torch-compile", "torch.compile: layers fused by Inductor, TF32 off", compiled),
    ]
    if with_jax:
        found.append(guest("jax", "XLA's program for the network, in full float32", jax))
    return found
