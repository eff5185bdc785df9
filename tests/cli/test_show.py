from __future__ import annotations

import pytest

from tilewright.cli import main


@pytest.mark.parametrize(
    ("net", "words"),
    [
        ("cifar10", ["16@5x5 pad 2", "20x4x4", "7.840", "22,466", "test accuracy 0.7"]),
        ("ece408", ["12@7x7 no bias", "24x26x26", "29.091", "2,612,310"]),
        ("ece408-2017", ["50@5x5 no bias", "tilewright train ece408-2017"]),
    ],
)
def test_the_layer_table(net, words, capsys):
    assert main(["show", net]) == 0
    text = capsys.readouterr().out
    for word in words:
        assert word in text, word
    assert max(map(len, text.splitlines())) <= 100
