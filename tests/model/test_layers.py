from __future__ import annotations

import numpy as np
import pytest
import torch

from tilewright.errors import TilewrightError
from tilewright.model.layers import (
    AveragePool,
    Convolution,
    Flatten,
    FullyConnected,
    MaxPool,
    Pixels,
    Softmax,
    Take,
)
from tilewright.model.layers.take import place_of
from tilewright.precision import FLOAT32


@pytest.mark.parametrize(
    ("layer", "before", "after"),
    [
        (Convolution(16, 5, padding=2), (3, 32, 32), (16, 32, 32)),
        (Convolution(4, 3, stride=2), (1, 8, 7), (4, 3, 3)),
        (Convolution(2, (1, 5), stride=(2, 3), padding=(0, 1)), (9, 5, 8), (2, 3, 2)),
        (MaxPool(2), (3, 7, 9), (3, 3, 4)),
        (AveragePool(3, stride=2), (2, 9, 8), (2, 4, 3)),
        (Flatten(), (24, 26, 26), (16224,)),
        (FullyConnected(10), (20, 4, 4), (10,)),
        (Softmax(), (10,), (10,)),
        (Take([1, 1, 0], range(2, 5)), (3, 2, 5), (3, 3, 3)),
    ],
)
def test_output_shape(layer, before, after):
    assert layer.output_shape(before) == after


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("padding", [0, 1, (0, 1), (2, 1), (1, 0, 2, 1)])
@pytest.mark.parametrize("size, stride", [((3, 3), 2), ((5, 2), 1), ((3, 3), (1, 3))])
def test_pytorch_pools_as_we_do(size, stride, padding, ceil):
    """By its own padding where it has such a one, and by ours."""
    x = np.random.default_rng(0).normal(size=(2, 3, 7, 10))
    around = {"stride": stride, "padding": padding, "ceil": ceil}
    for layer in (
        MaxPool(size, **around), AveragePool(size, **around),
        AveragePool(size, **around, count_padding=True),
    ):  # fmt: skip
        expected = layer.truth(x, np.zeros_like(x), {}, FLOAT32).value
        for _ in range(2):  # the second time with what the first one kept
            found = layer.torch()(torch.from_numpy(x)).numpy()
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_flops_count_two_for_a_multiply_add():
    assert Convolution(16, 5, padding=2).flops((3, 32, 32)) == 2 * 16 * 32 * 32 * 3 * 25
    assert FullyConnected(10).flops((20, 4, 4)) == 2 * 320 * 10
    assert AveragePool(2).flops((3, 4, 4)) == 3 * 2 * 2 * 4
    assert MaxPool(2).flops((3, 4, 4)) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Convolution(0, 3),
        lambda: Convolution(3, 0),
        lambda: Convolution(3, (1, 2, 3)),  # type: ignore[arg-type]
        lambda: Convolution(3, 3, padding=-1),
        lambda: Convolution(3, 3, stride=0),
        lambda: Convolution(True, 3),
        lambda: Convolution(3, 2.5),  # type: ignore[arg-type]
        lambda: Convolution(3, 3, bias="no"),  # type: ignore[arg-type]
        lambda: MaxPool(0),
        lambda: FullyConnected(-1),
        lambda: Take([], [0]),
        lambda: Take([0], [-1]),
        lambda: Take([0], [0.5]),  # type: ignore[list-item]
        lambda: Take(3, [0]),  # type: ignore[arg-type]
        lambda: Pixels((3, 32)),
        lambda: Pixels((3, 0, 32)),
        lambda: Pixels((3, 4, 4), scale=float("nan")),
    ],
)
def test_impossible_settings_are_refused(make):
    with pytest.raises(TilewrightError):
        make()


def test_layers_are_frozen_values():
    assert Convolution(3, 5) == Convolution(3, (5, 5), stride=(1, 1))
    assert MaxPool(2) != AveragePool(2)
    with pytest.raises(AttributeError):
        Convolution(3, 5).filters = 4  # type: ignore[misc]


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (Convolution(4, (5, 3), stride=(2, 1), padding=(2, 1)), (3, 7, 6)),
        (Convolution(2, 3, padding=3), (1, 1, 2)),  # windows that lie outside altogether
        (Convolution(5, 3), (2, 8, 9)),
        (Convolution(6, 3, padding=(0, 1, 2, 0), dilation=(2, 3), groups=2), (4, 8, 9)),
    ],
)
def test_taps_inside_the_image_are_counted_one_by_one(layer, shape):
    channels, *sizes = shape
    _, *places = layer.output_shape(shape)
    (stride_y, stride_x), (pad_y, pad_x) = layer.stride, layer.padding[:2]
    apart_y, apart_x = layer.dilation
    taps = sum(
        0 <= y * stride_y - pad_y + ky * apart_y < sizes[0]
        and 0 <= x * stride_x - pad_x + kx * apart_x < sizes[1]
        for y in range(places[0])
        for x in range(places[1])
        for ky in range(layer.kernel[0])
        for kx in range(layer.kernel[1])
    )
    assert layer.inside_flops(shape) == 2 * layer.filters * channels // layer.groups * taps
    if not any(layer.padding):
        assert layer.inside_flops(shape) == layer.flops(shape)


@pytest.mark.parametrize(
    "places",
    [
        (0,), (3,), (0, 1, 2), (2, 3, 4), (4, 3, 2, 1, 0), (0, 0, 1, 1, 2, 2), (5, 5, 5, 5),
        (2, 1, 0, 1, 2, 3, 2, 1), (0, 1, 1, 2, 3, 3, 4), (7, 0, 7, 0), (0, 0, 1, 2, 2, 3, 4, 4),
    ],
)  # fmt: skip
def test_places_as_an_expression_in_c(places):
    """`a ? b : c` as Python has it, and whole quotients."""

    def python(text):
        condition, asked, rest = text.partition(" ? ")
        if not asked:
            return condition.replace("/", "//")
        first, _, others = rest.partition(" : ")
        return f"({first}) if {condition} else ({python(others)})"

    found = [eval(python(place_of(places, "at")), {"at": at}) for at in range(len(places))]
    assert tuple(found) == places


def test_products_of_places_that_an_int_does_not_hold():
    """60,000 columns of 50,000: 50,000 times 59,999 is more than 2**31."""
    places = tuple(at * 50_000 // 60_000 for at in range(60_000))
    assert place_of(places, "at") == "(50000L * (at) + 0) / 60000"


def test_places_that_are_not_there():
    with pytest.raises(TilewrightError, match="takes column 5 of 5"):
        Take([0], [5]).output_shape((1, 3, 5))


def test_what_is_taken_in_a_few_words():
    assert Take(range(2, 14), [3]).summary == "rows 2-13 columns 3"
    assert Take([0, 0, 1, 1], [1, 0, 1]).summary == "rows 0-1 x2 columns 3 of 0-1"
