"""What was chosen, as plain data, gives the same machine code as choosing."""

from __future__ import annotations

import json

import msgspec
import pytest

from tests.fuse.cpu.machines import MACHINES
from tilewright.errors import TilewrightError
from tilewright.fuse.cpu.build import module_code
from tilewright.fuse.cpu.choice import Choice, build, choose
from tilewright.fuse.cpu.schedule import by_channels, by_images
from tilewright.model import zoo
from tilewright.model.layers import Convolution, FullyConnected, Pixels, Softmax
from tilewright.model.network import Network

SMALL = Network("small", Pixels((3, 9, 8)), (Convolution(5, 3), FullyConnected(4), Softmax()))
AVX2 = MACHINES["avx2"]


@pytest.mark.parametrize("level", MACHINES)
@pytest.mark.parametrize("network", [*map(zoo.network, zoo.ZOO), SMALL], ids=lambda each: each.name)
def test_the_same_schedules_come_back(network: Network, level: str) -> None:
    on = MACHINES[level]
    text = json.dumps(msgspec.to_builtins(choose(network, on)))
    many, few = build(network, on, Choice.of(json.loads(text)))
    assert many == by_images(network, on.target)
    assert few == by_channels(network, on.target)


def test_and_so_does_the_same_code() -> None:
    for plan, own in zip(
        build(SMALL, AVX2, choose(SMALL, AVX2)),
        (by_images(SMALL, AVX2.target), by_channels(SMALL, AVX2.target)),
        strict=True,
    ):
        assert module_code(SMALL, AVX2, plan) == module_code(SMALL, AVX2, own)


def test_other_tiles_give_other_schedules() -> None:
    choice = choose(SMALL, AVX2)
    assert choice.many == {"conv": (1, 4)}
    many, few = build(SMALL, AVX2, msgspec.structs.replace(choice, many={"conv": (2, 2)}))
    assert many.groups[0].tile == (2, 2)
    assert few == by_channels(SMALL, AVX2.target)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("vectors", "avx512", "options.vectors: machine code for avx512, and this CPU has avx2"),
        ("many", {}, "options.many: tiles of nothing, and the convolutions are conv"),
        ("few", {"conv": (1, 1), "x": (1, 1)}, "options.few: tiles of conv, x, and the"),
        ("many", {"conv": (0, 4)}, "conv: a tile of 0x4 positions is not possible"),
        ("many", {"conv": (8, 4)}, "conv: a tile of 8x4 positions is not possible"),
        ("few", {"conv": (4, 6)}, "conv: a tile of 4x6 positions is not possible .* 16 registers"),
    ],
)
def test_what_cannot_be_built_is_refused(field: str, value: object, words: str) -> None:
    choice = msgspec.structs.replace(choose(SMALL, AVX2), **{field: value})
    with pytest.raises(TilewrightError, match=words):
        build(SMALL, AVX2, choice)


@pytest.mark.parametrize(
    ("field", "value", "place"),
    [
        ("vectors", 3, r"\$.vectors"),
        ("many", {"conv": [1]}, r"\$.many"),
        ("together", 10**9, r"\$.together"),
        ("chunk_bytes", 0, r"\$.chunk_bytes"),
        ("images", "some", r"\$.images"),
        ("unknown", 1, "unknown"),
    ],
)
def test_what_is_no_choice_names_the_field(field: str, value: object, place: str) -> None:
    options = {**msgspec.to_builtins(choose(SMALL, AVX2)), field: value}
    with pytest.raises(TilewrightError, match=f"^options: .*{place}"):
        Choice.of(options)
