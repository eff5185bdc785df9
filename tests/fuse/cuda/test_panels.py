"""Fully connected layers in panels: every way of every source against the truth, and the layout."""

from __future__ import annotations

import operator
import re
from unittest import mock

import numpy as np
import pytest

from tests.fuse.cuda import on_fibers, on_host
from tests.fuse.cuda.interpreter import interpret
from tests.fuse.cuda.panels_interpreter import PROCESSORS, place, run_way
from tests.fuse.cuda.panels_interpreter import in_panels as into_panels
from tests.fuse.cuda.test_run import fused, images
from tests.kept import compile_cubin
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.cut import cut
from tilewright.fuse.cuda.emit import text
from tilewright.fuse.cuda.panels import Panels, in_panels
from tilewright.fuse.cuda.panels_ways import BAND, CHUNK_BYTES, WAYS, Few, Into, Many
from tilewright.fuse.cuda.run import MOST_IN_PANELS, kernel_text
from tilewright.model.layers import Convolution, FullyConnected, Layer, Pixels, ReLU, Softmax, Tanh
from tilewright.model.network import Network
from tilewright.runtime import nvrtc
from tilewright.runtime.dialect import LARGEST_GRID
from tilewright.truth import reference
from tilewright.truth.attempt import compare
from tilewright.truth.trials import random_parameters

PRECISIONS = list(ARITHMETICS)
PANELS, TENSOR, SUMS = (text(f"{name}.cuh") for name in ("panels", "panels_tensor", "sums"))
ROWS = (FullyConnected(70), Tanh(), FullyConnected(130), ReLU(), FullyConnected(11), Softmax())
SCALED = Pixels((3, 7, 11), scale=(1.0, 0.5, 0.25), shift=(0.0, 1.0, -1.0))


def ready(pixels: Pixels, layers: tuple[Layer, ...]) -> Network:
    network = Network("rows", pixels, layers)
    return network.with_parameters(random_parameters(network, np.random.default_rng(0)))


@pytest.mark.parametrize("shares", [True, False], ids=["few", "many"])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    "pixels, layers, kind, kernels",
    [
        (SCALED, ROWS, "uint8", 3),
        (SCALED, ROWS, "float32", 3),
        # Words of a picture with an odd number of channels; a softmax of too many scores.
        (Pixels((2, 9, 9)), (Convolution(5, 2), FullyConnected(90), Softmax()), "float32", 3),
    ],
)
def test_every_way_gives_the_truth(
    pixels: Pixels, layers: tuple[Layer, ...], kind: str, kernels: int, precision: str, shares: bool
) -> None:
    network, generator = ready(pixels, layers), np.random.default_rng(1)
    if kind == "uint8":
        given = generator.integers(0, 256, (67, *pixels.shape), np.uint8)
    else:
        given = generator.normal(size=(67, *pixels.shape)).astype(np.float32)
    if shares:
        given = given[:19]
    arithmetic = ARITHMETICS[precision]
    plans = cut(network.stages, arithmetic, 90)
    assert len(plans) == kernels and any(isinstance(each, Panels) for each in plans)
    truth = reference.chain(network.stages, network.parameters, given, arithmetic.precision)[-1]
    assert compare(interpret(plans, network, given, shares), truth)[1] is None
    if shares:  # also where another way is estimated faster
        with mock.patch.object(Panels, "how", lambda plan, images, *_: (plan.few(images),)):
            assert compare(interpret(plans, network, given, shares), truth)[1] is None


def test_how_depends_on_the_batch() -> None:
    network = ready(Pixels((1, 28, 28)), (FullyConnected(512), ReLU(), FullyConnected(512)))
    first, second = cut(network.stages, ARITHMETICS["fp16"], 90)
    assert isinstance(first, Panels) and isinstance(second, Panels)
    for count in (1, 16, first.most_few):
        assert [type(each) for each in first.how(count, PROCESSORS, True)] == [Few]
    assert [type(each) for each in first.how(1, PROCESSORS, False)] == [Into, Many]
    assert [type(each) for each in second.how(1000, PROCESSORS, True)] == [Many]
    for plan in (first, second):
        for count in (1, 17, 300, 1000, 10_000):
            for shares in (True, False):
                for how in plan.how(count, PROCESSORS, shares):
                    x, y, z = plan.grid(how, count)
                    assert plan.bytes_of(how) <= 227 * 1024 - 1024
                    if isinstance(how, Into):
                        assert x * 8 * 16 >= -(-count // 8) * plan.own_pieces
                    elif isinstance(how, Few):
                        assert x * how.columns * 8 >= 512 and y * how.tiles * 16 >= count
                    else:
                        assert x * how.bands * 64 >= 512 and y * how.wide >= count
                        assert x % how.across == 0 and z == how.parts


def test_what_is_launched() -> None:
    network = ready(Pixels((1, 28, 28)), (FullyConnected(512), ReLU(), FullyConnected(10)))
    made, runtime = fused(network)
    x, out = images(network, 3)
    made(x, out)
    first, second = runtime.launches
    assert (first[0], first[3]) == ("network_fp16_fc1_to_relu_few", ("input", "fc1", "relu"))
    assert second[2][0] is first[2][1] and np.shares_memory(second[2][1], out)
    assert first[2][1].shape == (256, 256)
    runtime.launches.clear()
    made(*images(network, 300))
    into, first, second = runtime.launches
    assert (into[4].flops, first[4].flops) == (0, 300 * 2 * 784 * 512)
    assert into[2][1] is first[2][0] and first[2][0].shape == (512, 416)
    assert first[2][1] is second[2][0]
    assert [each[2][-1] for each in runtime.launches] == [300] * 3


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("last", [(), (FullyConnected(10), Softmax())], ids=["layer", "softmax"])
def test_so_many_images_that_a_grid_does_not_hold_them_go_in_pieces(
    last: tuple[Layer, ...], precision: str
) -> None:
    network = ready(Pixels((1, 28, 28)), (FullyConnected(512), ReLU(), *last))
    most = fused(network, precision)[0].series_of(10**7).most
    assert most == MOST_IN_PANELS
    for plan in cut(network.stages, ARITHMETICS[precision], 90):
        assert isinstance(plan, Panels)
        for how in plan.how(most, PROCESSORS, True):
            assert all(map(operator.le, plan.grid(how, most), LARGEST_GRID))


@pytest.mark.parametrize("pieces", [8, 24])
def test_a_piece_is_where_the_text_says(pieces: int) -> None:
    (found,) = re.findall(r"piece_at\(int row, int piece\)\n\{\n    return (.*?);", PANELS, re.S)
    names = {"TW_PANEL": 256, "TW_CHUNK_WORDS": 8192, "TW_CHUNK": 8, "PIECES": pieces}
    for name, value in names.items():
        found = re.sub(rf"\b{name}\b", str(value), found)
    row, piece = np.arange(512)[:, None], np.arange(pieces)
    said = eval(
        " ".join(found.replace("/", "//").split()),
        {"size_t": np.asarray, "row": row, "piece": piece},
    )
    np.testing.assert_array_equal(said, place(row, piece, pieces))
    # The same of words that a kernel of another kind writes, of an image.
    at = (np.arange(4 * pieces) // 4 * 4, np.arange(4 * pieces) % 4)
    text_of = " ".join(SUMS.split())
    (begins,) = re.findall(r"row\(panels \+ (.*?)\), turned\((.*?)\),", text_of)
    (there,) = re.findall(r"return row\[(.*?)\]; }", text_of)
    names = {"image": row, "words": 4 * pieces, "at": sum(at), "size_t": np.asarray}
    begin, turned = (eval(each.replace("/", "//"), names) for each in begins)
    said = begin + eval(there, {**names, "turned": turned})
    np.testing.assert_array_equal(said, place(row, at[0] // 4, pieces) + at[1])
    packed = in_panels(np.arange(512 * pieces * 4, dtype=np.uint32).reshape(512, -1))
    np.testing.assert_array_equal(packed[place(row, piece, pieces)] // 4, row * pieces + piece)


def test_operands_are_described_as_they_lie() -> None:
    """With a swizzle of 128 bytes (1 in the last two bits), tensor cores take rows of 128 bytes,
    groups of 8 of them a distance apart, and look for a piece where the address says whose bits 4
    to 6 were changed by bits 7 to 9."""
    assert "(apart >> 4) << 32 | 1ull << 62" in text("shared.cuh")
    assert len(re.findall(r"described\(.*, TW_GROUP_BYTES\);", TENSOR)) == 2
    (down,) = re.findall(r"TW_GROUP_BYTES \((\d+) \* TW_ROW_BYTES\)", text("panels_many.cuh"))
    down = int(down) * CHUNK_BYTES
    (two,) = map(int, re.findall(r"TW_TWO_PIECES (\d+)", TENSOR))
    row, piece = np.arange(256)[:, None], np.arange(8)
    address = row // 8 * down + row % 8 * 128 + piece * two // 2
    np.testing.assert_array_equal(address ^ address >> 3 & 0x70, 4 * place(row, piece, 8))
    # Bits are those of the address itself: places in the ring begin on 1024 bytes.
    for tensor, ways in WAYS.items():
        for way in ways:
            assert (BAND * way.bands + way.wide) * CHUNK_BYTES % 1024 == 0, (tensor, way)
    assert "__align__(1024) uint4 memory[]" in kernel_text(
        cut(ready(SCALED, ROWS).stages, ARITHMETICS["fp16"], 90)[0], "rows", SCALED, "uint8"
    )


@pytest.mark.skipif(nvrtc.missing() is not None, reason=str(nvrtc.missing()))
@pytest.mark.parametrize(
    "precision, which, images",
    [("fp16", 0, 1), ("fp16", 1, 300), ("tf32", 2, 1), ("fp32", 0, 300), ("fp32", 2, 1)],
)
def test_every_way_compiles(precision: str, which: int, images: int) -> None:
    network = ready(SCALED, ROWS)
    plan = cut(network.stages, ARITHMETICS[precision], 90)[which]
    assert isinstance(plan, Panels)
    for how in plan.how(images, PROCESSORS, True):
        source = "panels" if which or isinstance(how, Many) else "uint8"
        made = compile_cubin("rows", kernel_text(plan, "rows", SCALED, source, how), "sm_90a")
        assert made.spilled_bytes == 0


# Without tensor cores, of one block's own sums: what groups divide, and bands of other sizes.
WHOLE = [way for way in WAYS[False] if way.parts == 1 and (way.splits > 1 or way.wide in (64, 80))]


def between(outputs: int, last: bool) -> tuple[Network, Panels]:
    """A layer in fp32 that takes panels, of three chunks a row, and gives panels or rows."""
    more = () if last else (FullyConnected(9),)
    network = ready(Pixels((5, 1, 1)), (FullyConnected(90), ReLU(), FullyConnected(outputs), *more))
    plan = next(each for each in cut(network.stages, ARITHMETICS["fp32"], 90)
                if isinstance(each, Panels) and each.filters == outputs)  # fmt: skip
    assert plan.given == "panels" and (plan.gives == "panels") != last
    return network, plan


def on_threads(
    network: Network, plan: Panels, how: Many, images: int, seed: int,
    change: tuple[str, str] | None = None,
) -> bool:  # fmt: skip
    """Whether a whole kernel, its threads as fibers, gives what the interpreter does."""
    rows = np.random.default_rng(seed).normal(size=(images, plan.words)).astype(np.float32)
    given, packed = into_panels(rows.view(np.uint32)), plan.parameters(network.parameters)
    right = run_way(plan, how, packed, network.input, given, images).view(np.float32).ravel()
    found = on_fibers.run_many(plan, how, packed, given, images, seed=seed, change=change)
    if isinstance(found, str):
        return False
    there = found.view(np.float32)
    return bool(np.allclose(there[: right.size], right, rtol=1e-4, atol=1e-4))


@pytest.mark.skipif(on_host.missing() is not None, reason=str(on_host.missing()))
@pytest.mark.parametrize("how", WHOLE, ids=str)
def test_a_whole_kernel_whoever_goes_on_first(how: Many) -> None:
    last = how.wide % 16 == 0
    network, plan = between(min(200, how.outputs) if how.each != 8 else 200, last)
    assert how.fits(plan.filters)
    assert on_threads(network, plan, how, how.wide + 3, 1)


MISTAKES = {
    "none": None,
    "pieces are where they would be in rows": ("from + output ^ piece", "from + output + piece"),
    "a turn is not waited for": (
        "        wait_for(full + 8 * turn.stage, turn.phase);\n        return", "        return",
    ),
    "a turn is fetched over one that is read": (
        "wait_for(empty + 8 * turn.stage, turn.phase ^ 1);", "",
    ),
    "lanes still read what is given back": ("        __syncwarp();\n        ring", "        ring"),
    "odd terms are forgotten": ("        sum[0][i] += more[i];", "        ;"),
    "sums are read before others have left theirs": (
        "    if (L::PARTS == 1) {\n        all_meet<L>();", "    if (L::PARTS == 1) {",
    ),
}  # fmt: skip


@pytest.mark.skipif(on_host.missing() is not None, reason=str(on_host.missing()))
@pytest.mark.parametrize("change", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_shows_in_some_run(change: tuple[str, str] | None) -> None:
    """With two stages, so that the ring is full and empty in turn."""
    how = Many(2, 32, 2, splits=2)
    network, plan = between(100, last=False)
    right = [on_threads(network, plan, how, 40, seed, change) for seed in range(6)]
    assert all(right) == (change is None)
