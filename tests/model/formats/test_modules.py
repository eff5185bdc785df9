"""Networks of others, layer by layer, and through both exporters to ONNX."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

import tilewright
from tests.model.formats.modules import MODULES, made
from tilewright.execute import program_of
from tilewright.rungs import choose
from tilewright.runtime.device import CPU

# One worker has them: what PyTorch needs to export and to train takes seconds to import.
pytestmark = pytest.mark.xdist_group("torch")
# Modules whose outputs are those of layers of a kind.
KINDS = {nn.ReLU: "relu", nn.MaxPool2d: "pool", nn.AvgPool2d: "pool", nn.Linear: "fc",
         nn.AdaptiveAvgPool2d: "pool", nn.Softmax: "softmax"}  # fmt: skip


@cache
def taken(name):
    """A module, images, and the network it becomes."""
    module, x = made(name)
    return module, x, tilewright.from_torch(module, x, name=name)


def hooked(module, x):
    """The outputs of a module's parts in the order of execution, by kind of layer.

    A convolution with a batch normalisation behind it is one layer: the latter's output is its.
    """
    found: dict[str, list[np.ndarray]] = {}
    last: list[nn.Module] = []

    def keep(each, _, output):
        normalised = isinstance(each, nn.BatchNorm2d)
        kind = "conv" if normalised or isinstance(each, nn.Conv2d) else KINDS.get(type(each))
        if kind is None:
            return
        outputs = found.setdefault(kind, [])
        if normalised and isinstance(last[-1], nn.Conv2d):
            outputs.pop()
        outputs.append(output.numpy())
        last.append(each)

    handles = [each.register_forward_hook(keep) for each in module.modules()]
    with torch.no_grad():
        result = module(x).numpy()
    for handle in handles:
        handle.remove()
    return found, result


def close(found, expected):
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected.reshape(found.shape), rtol=2e-4, atol=2e-5 * scale)


@pytest.mark.parametrize("name", MODULES)
def test_every_layer_computes_what_its_module_does(name):
    module, x, network = taken(name)
    expected, result = hooked(module, x)
    kinds = [stage.kind for stage in network.stages]
    assert {kind: kinds.count(kind) for kind in expected} == {
        kind: len(outputs) for kind, outputs in expected.items()
    }
    program = program_of(network, choose(CPU, "im2col"), CPU, len(x))
    program.create_outputs(len(x))
    waiting = {kind: iter(outputs) for kind, outputs in expected.items()}
    by_name = {stage.name: stage for stage in network.stages}
    seen = 0
    for step, output in zip(program.steps, program.activations(x.numpy()), strict=False):
        kind = by_name[step.layers[-1]].kind
        if kind in expected:
            close(output, next(waiting[kind]))
            seen += 1
    assert seen == sum(map(len, expected.values())) > 10
    close(program(x.numpy()), result)


@pytest.mark.parametrize(
    ("name", "dynamo"), [*((name, False) for name in MODULES), ("resnet8", True)]
)
def test_exporters_give_the_same_network(name, dynamo, tmp_path):
    module, x, direct = taken(name)
    path = tmp_path / f"{name}.onnx"
    torch.onnx.export(module, (x,), path, dynamo=dynamo, verbose=False)
    network = tilewright.load(path)
    assert network.layers == direct.layers and network.sources == direct.sources
    for key, value in direct.parameters.items():
        np.testing.assert_allclose(network.parameters[key], value, rtol=1e-4, atol=1e-5)
