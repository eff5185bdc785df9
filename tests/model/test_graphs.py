"""Networks whose layers take more than what the one before them gave."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import graphs
from tilewright.errors import TilewrightError
from tilewright.model.formats import description
from tilewright.model.layers import (
    Add,
    AveragePool,
    Concat,
    Convolution,
    FullyConnected,
    MaxPool,
    Pixels,
    ReLU,
)
from tilewright.model.network import Network
from tilewright.truth import reference
from tilewright.truth.odd import GRAPHS
from tilewright.truth.trials import random_parameters


def of_layers(*layers, sources, shape=(2, 6, 6)):
    return Network("graph", Pixels(shape), layers, sources=sources)


def test_a_layer_knows_what_it_takes():
    residual = GRAPHS[0]
    add = residual.stages[4]
    assert (add.name, add.sources, add.input_shapes) == ("add", (3, 2), ((5, 7, 6),) * 2)
    assert add.flops == 5 * 7 * 6 and add.bytes == 4 * 3 * 5 * 7 * 6
    assert [stage.name for stage in residual.readers(residual.stages[2])] == ["conv2", "add"]
    assert not residual.is_chain
    assert Network("chain", Pixels((1, 4, 4)), (ReLU(), ReLU())).is_chain


@pytest.mark.parametrize(
    ("layers", "sources", "words"),
    [
        ((ReLU(), ReLU()), ((0,), (0,)), "nobody takes the output of relu1"),
        ((ReLU(), ReLU()), ((0,), (2,)), "layer 2 (relu2): takes the output of layer 2, which is"),
        ((ReLU(),), ((-1,),), "takes the output of layer -1, which is not before it"),
        ((ReLU(),), (("input",),), "takes the output of layer 'input'"),
        ((ReLU(), ReLU()), ((0,), (0, 1)), "layer 2 (relu2): takes one input, not 2"),
        ((ReLU(), Add()), ((0,), (1,)), "layer 2 (add): takes two inputs or more, not 1"),
        ((ReLU(),), ((),), "takes one input, not 0"),
        ((ReLU(),), (), "1 layers and what 0 of them take"),
        ((Convolution(3, 1), Add()), ((0,), (1, 0)), "cannot add 2x6x6 to 3x6x6"),
        ((MaxPool(2), Concat()), ((0,), (0, 1)), "cannot put 2x3x3 behind 2x6x6"),
        ((Convolution(3, 1, groups=2),), ((0,),), "3 filters cannot be divided into 2 groups"),
        ((Convolution(3, 1, groups=3),), ((0,),), "2 channels cannot be divided into 3 groups"),
        ((Convolution(3, 4, dilation=2),), ((0,),), "kernel 7x7 is larger than its input 6x6"),
    ],
)
def test_what_does_not_fit_is_named(layers, sources, words):
    with pytest.raises(TilewrightError) as caught:
        of_layers(*layers, sources=sources)
    assert words in str(caught.value)


@pytest.mark.parametrize("padding", [2, (0, 3), (0, 0, 2, 0)])
def test_a_window_never_lies_outside(padding):
    with pytest.raises(TilewrightError, match="leaves windows of 2x3 outside"):
        MaxPool((2, 3), padding=padding)


@given(graphs())
def test_descriptions_and_pickles_keep_the_graph(network):
    for kept in (
        description.from_json(description.to_json(network), "it"),
        pickle.loads(pickle.dumps(network)),
        copy.deepcopy(network),
    ):
        assert (kept.stages, kept.sources) == (network.stages, network.sources)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"type": "add", "from": ["conv", "input", "none"]}, "'none'"),
        ({"type": "add", "from": []}, '"from" must be a name or a list of names, not []'),
        ({"type": "add", "from": [1, 2]}, '"from" must be a name or a list of names'),
        ({"type": "relu", "from": {"a": 1}}, '"from" must be a name or a list of names'),
        ({"type": "relu", "from": "input"}, "nobody takes the output of conv"),
        ({"type": "add", "from": ["conv", "add"]}, "which is not before it"),
    ],
)
def test_a_description_with_wrong_names_is_refused(entry, words):
    layers = [{"type": "convolution", "filters": 2, "kernel": 1}, entry]
    document = {"name": "x", "input": {"shape": [2, 3, 3]}, "layers": layers}
    with pytest.raises(TilewrightError) as caught:
        description.from_json(json.dumps(document), "file.json")
    assert words in str(caught.value) and str(caught.value).startswith("file.json: ")


@given(graphs(), st.integers(0, 2**32 - 1))
def test_the_reference_is_what_pytorch_computes(network, seed):
    """In float64; settings such as a slope are float32."""
    generator = np.random.default_rng(seed)
    parameters = random_parameters(network, generator)
    x = generator.normal(size=(2, *network.input.shape))
    truths = reference.chain(network.stages[1:], parameters, {0: x})
    made = {0: torch.from_numpy(x)}
    for stage in network.stages[1:]:
        given = [torch.from_numpy(parameters[name]).double() for name in stage.parameter_shapes]
        made[stage.index] = stage.layer.torch(*given)(*(made[index] for index in stage.sources))
        found = truths[stage.index - 1].value
        np.testing.assert_allclose(found, made[stage.index].numpy(), rtol=1e-6, atol=1e-7)


def test_average_pooling_counts_as_pytorch_does():
    x = torch.arange(56.0).reshape(1, 1, 7, 8)
    for counted in (False, True):
        for ceil in (False, True):
            layer = AveragePool(3, stride=2, padding=1, ceil=ceil, count_padding=counted)
            expected = torch.nn.functional.avg_pool2d(
                x, 3, 2, 1, ceil_mode=ceil, count_include_pad=counted
            )
            network = Network("pool", Pixels((1, 7, 8)), (layer,))
            (truth,) = reference.chain(network.stages[1:], {}, {0: x.numpy()})
            np.testing.assert_allclose(truth.value, expected.numpy(), rtol=1e-6)


def test_additions_have_a_bound_of_zero_where_they_are_exact():
    network = of_layers(Convolution(2, 1), Add(), sources=((0,), (1, 0)), shape=(2, 3, 3))
    stage = network.stages[2]
    whole = np.full((1, 2, 3, 3), 4095.0)
    for value, exact in ((whole, True), (whole + 0.1, False)):
        other = reference.Truth(value, np.zeros_like(value))
        truth = reference.layer(stage, {}, value, others=[other])
        assert (truth.value == 2 * value).all()
        assert (not truth.bound.any()) == exact
        assert (truth.bound <= 1e-3).all()


def test_parts_of_a_graph_take_what_was_made_outside():
    network = GRAPHS[0]
    parameters = random_parameters(network, np.random.default_rng(1))
    x = np.random.default_rng(2).normal(size=(1, 3, 7, 6))
    whole = reference.chain(network.stages[1:], parameters, {0: x})
    part = reference.chain(network.stages[4:], parameters, {3: whole[2].value, 2: whole[1].value})
    np.testing.assert_array_equal(part[-1].value, whole[-1].value)


def test_a_fully_connected_network_may_branch_too():
    layers = (FullyConnected(4), FullyConnected(4), Add(), Concat())
    network = of_layers(*layers, sources=((0,), (0,), (1, 2), (3, 1, 2)))
    assert network.output_shape == (12,)
