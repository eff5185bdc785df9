from __future__ import annotations

import pytest

from tilewright.cli import main
from tilewright.fuse.cpu import build


@pytest.mark.parametrize("net", ["cifar10", "ece408-2017"])
@pytest.mark.parametrize(("batch", "lanes"), [("640", "images"), ("1", "channels")])
def test_explain_fused(net, batch, lanes, capsys):
    assert main(["explain", "fused", "--net", net, "--batch", batch]) == 0
    text = capsys.readouterr().out
    assert "measured peak" in text
    assert f"{lanes})" in text
    assert f"batch of {batch}:" in text
    assert "2x2 positions x" in text
    assert max(map(len, text.splitlines())) <= 100


def test_machine_code_of_a_layer(capsys):
    assert main(["explain", "fused", "--net", "cifar10", "--asm", "conv2"]) == 0
    text = capsys.readouterr().out
    if "+fma" in build.host().features:
        assert text.count("vfmadd") >= 50
    assert "internal" not in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["explain", "fused", "--asm", "conv9"], "unknown layer of the fused kernel 'conv9'"),
        (["explain", "serial"], "has nothing to explain yet"),
        (["explain", "fusd"], "did you mean 'fused'"),
    ],
)
def test_what_cannot_be_explained(arguments, words, capsys):
    assert main(arguments) == 2
    assert words in capsys.readouterr().err
