from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import CHARACTERS
from tests.strategies import networks
from tilewright.errors import TilewrightError
from tilewright.model.formats import description

GOOD = {
    "name": "n",
    "input": {"shape": [1, 8, 8]},
    "layers": [{"type": "convolution", "filters": 2, "kernel": 3}, {"type": "relu"}],
}


@given(networks())
def test_round_trip(network):
    again = description.from_json(description.to_json(network), "here")
    assert (again.name, again.input, again.layers) == (network.name, network.input, network.layers)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": 3}, "name must be up to 60 printable characters"),
        ({"layers": {}}, "layers must be a list"),
        ({"layers": []}, "no layers"),
        ({"layers": [{"type": "convolutoin"}]}, "did you mean 'convolution'"),
        ({"layers": [{"type": "convolution", "kernel": 3}]}, "layer 1: convolution lacks"),
        ({"layers": [{"type": "relu", "size": 3}]}, "unknown setting of relu 'size'"),
        ({"layers": ["relu"]}, 'needs an object with a "type"'),
        ({"layers": [{"type": "max_pool", "size": 99}]}, "layer 1 (pool): pooling window 99x99"),
        ({"input": {"shape": 3}}, "input shape must be a list"),
        ({"input": {"shape": [1, 8]}}, "not channels, height, width"),
        ({"input": {"shape": [1, 8, 8], "scale": "x"}}, "input scale must be a number"),
        ({"colour": 1}, "unknown key in the description 'colour'"),
    ],
)
def test_errors_name_the_file_and_the_layer(change, words):
    with pytest.raises(TilewrightError) as error:
        description.from_json(json.dumps(GOOD | change), "net.json")
    assert str(error.value).startswith("net.json: ")
    assert words in str(error.value)


@pytest.mark.parametrize("missing", ["name", "input", "layers"])
def test_missing_keys(missing):
    rest = {key: value for key, value in GOOD.items() if key != missing}
    with pytest.raises(TilewrightError, match=f"lacks '{missing}'"):
        description.from_json(json.dumps(rest), "net.json")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(CHARACTERS, max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(CHARACTERS, max_size=8), inner)
    ),
    max_leaves=6,
)


@given(
    st.sampled_from(["name", "input", "layers"]), values,
    st.sampled_from(["type", "filters", "kernel", "stride", "padding", "bias"]),
)  # fmt: skip
def test_nothing_in_a_description_crashes_the_reader(key, value, setting):
    broken = [GOOD | {key: value}]
    layer = {"type": "convolution", "filters": 2, "kernel": 3} | {setting: value}
    broken.append(GOOD | {"layers": [layer]})
    for document in broken:
        try:
            description.from_json(json.dumps(document), "net.json")
        except TilewrightError as error:
            assert "net.json" in str(error)


@given(st.text(CHARACTERS, max_size=60))
def test_any_text_is_read_or_refused(text):
    with pytest.raises(TilewrightError, match=r"net\.json"):
        description.from_json(text, "net.json")
