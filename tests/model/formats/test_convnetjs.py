from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import TilewrightError
from tilewright.model.formats import convnetjs
from tilewright.model.layers import Convolution, Flatten, FullyConnected, Pixels, ReLU
from tilewright.model.network import Network

NETWORK = Network(
    "n", Pixels((2, 4, 5)), (Convolution(3, (3, 2)), ReLU(), Flatten(), FullyConnected(2))
)


def write_snapshot(folder, network=NETWORK):
    """A snapshot whose every number says which parameter it is, in the order of the format."""
    filters, channels, kernel_y, kernel_x = 3, 2, 3, 2
    lines = [f"{kernel_x} {kernel_y} {channels} {filters}"]
    for f in range(filters):
        for x in range(kernel_x):
            for y in range(kernel_y):
                lines += [str(1000 * f + 100 * c + 10 * y + x) for c in range(channels)]
    (folder / "layer1_conv.txt").write_text("\n".join([*lines, "0.5", "1.5", "2.5"]))
    height, width = 2, 4
    lines = [f"{3 * height * width} 2"]
    for o in range(2):
        for y in range(height):
            for x in range(width):
                lines += [str(1000 * o + 100 * c + 10 * y + x) for c in range(3)]
    (folder / "layer3_fc.txt").write_text("\n".join([*lines, "7", "8"]))


@pytest.mark.parametrize("between", [(Flatten(),), ()])
def test_orders_are_turned_into_ours(tmp_path, between):
    """ConvNetJS has no Flatten: its fc layer always sees the picture."""
    write_snapshot(tmp_path)
    network = Network("n", NETWORK.input, (*NETWORK.layers[:2], *between, FullyConnected(2)))
    parameters = convnetjs.read(tmp_path, network)
    weight = parameters["conv.weight"]
    assert weight.shape == (3, 2, 3, 2)
    for (f, c, y, x), value in np.ndenumerate(weight):
        assert value == 1000 * f + 100 * c + 10 * y + x
    for (o, i), value in np.ndenumerate(parameters["fc.weight"]):
        c, y, x = np.unravel_index(i, (3, 2, 4))
        assert value == 1000 * o + 100 * c + 10 * y + x
    assert parameters["conv.bias"].tolist() == [0.5, 1.5, 2.5]
    assert parameters["fc.bias"].tolist() == [7, 8]


def test_the_thesis_snapshot_is_read(thesis_weights):
    import tilewright

    network = tilewright.load("cifar10", thesis_weights)
    assert network.parameters["conv1.weight"][0, 0, 0, 0] == np.float32(0.49360308834139554612)
    assert network.parameters["conv1.weight"][0, 1, 0, 0] == np.float32(-0.28431075243435233180)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: (d / "layer3_fc.txt").unlink(), "layer3_fc.txt is missing"),
        (lambda d: (d / "layer9_conv.txt").write_text(""), "layer9_conv.txt does not belong"),
        (lambda d: (d / "layer1_conv.txt").write_text("2 2 2 3\n1"), "shape line is '2 2 2 3'"),
        (lambda d: (d / "layer1_conv.txt").write_text("2 3 2 3\n1\n2"), "2 numbers after"),
        (lambda d: replace(d / "layer1_conv.txt", "1.5", "nan"), "line 39: 'nan' is not finite"),
        (lambda d: replace(d / "layer1_conv.txt", "1.5", "x"), "could not convert"),
    ],
)
def test_damage_is_named(tmp_path, change, words):
    write_snapshot(tmp_path)
    change(tmp_path)
    with pytest.raises(TilewrightError) as error:
        convnetjs.read(tmp_path, NETWORK)
    assert words in str(error.value)


def replace(path, old, new):
    path.write_text(path.read_text().replace(old, new))


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("snapshot")
    write_snapshot(folder)
    (folder / "layer1_conv.txt").write_bytes(content)
    with pytest.raises(TilewrightError, match="layer1_conv"):
        convnetjs.read(folder, NETWORK)
