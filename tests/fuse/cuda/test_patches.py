"""Wide convolutions in patches: what they compute, and mistakes planted in their constants."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from tests.fuse.cuda import on_fibers, on_host
from tests.fuse.cuda.interpreter import interpret
from tests.fuse.cuda.memory import Memory, Mistake
from tests.fuse.cuda.patches_interpreter import Work, check_rings, run_patches
from tests.fuse.cuda.patches_interpreter import turned as turned_rows
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.arrange import arranged
from tilewright.fuse.cuda.choice import Choice, Connected, Patched, Stacked
from tilewright.fuse.cuda.cut import build, cut
from tilewright.fuse.cuda.emit_patches import patches_text
from tilewright.fuse.cuda.explain import explain
from tilewright.fuse.cuda.generations import GENERATIONS, HOPPER
from tilewright.fuse.cuda.operations import Operation
from tilewright.fuse.cuda.panels import in_whole_panels
from tilewright.fuse.cuda.patches import Patches
from tilewright.fuse.cuda.patches_choice import all_patches, patches_as
from tilewright.fuse.cuda.patches_plain import PlainPatches
from tilewright.fuse.cuda.patches_tensor import TensorPatches
from tilewright.fuse.cuda.run import FusedNetwork
from tilewright.fuse.cuda.steps_patches import patches_program
from tilewright.fuse.cuda.to_do import to_do
from tilewright.model.layers import (
    Add,
    AveragePool,
    Convolution,
    Flatten,
    FullyConnected,
    MaxPool,
    Pixels,
    ReLU,
    Softmax,
    Tanh,
)
from tilewright.model.network import Network
from tilewright.runtime import cuda
from tilewright.runtime.cuda import CudaRuntime
from tilewright.runtime.device import CUDA
from tilewright.runtime.nvrtc import compile_cubin
from tilewright.truth import reference
from tilewright.truth.attempt import compare
from tilewright.truth.trials import random_parameters

REASON = cuda.missing(CUDA)
IMAGES = 3
# Channels that leave a chunk half empty, filters that leave columns empty, both poolings, strides,
# zeros on some sides only, a sum that something is added to and that others read, and a picture
# whose windows leave a row over; a fully connected layer at the end, which reads panels.
LAYERS = (
    Convolution(32, 1), Tanh(),
    Convolution(40, 3, padding=1), ReLU(), MaxPool(2),
    Convolution(40, 3, padding=1), Add(), Tanh(),
    Convolution(72, (3, 2), stride=(1, 2), padding=(1, 0, 1, 3)), AveragePool(2),
    Convolution(32, 1, stride=2), ReLU(),
    Convolution(512, 5, stride=2, padding=2), Flatten(),
    FullyConnected(24), ReLU(), FullyConnected(5), Softmax(),
)  # fmt: skip
SOURCES = (*((number,) for number in range(6)), (5, 6), *((number,) for number in range(7, 18)))


# Kernels on tensor cores, with positions as an instruction's rows or as its columns; and without.
WAYS = [("fp16", False), ("fp16", True), ("tf32", False), ("tf32", True), ("fp32", False)]
WAYS += [("tf32x3", False), ("tf32x3", True)]
PRECISIONS = "fp16", "tf32", "tf32x3", "fp32"


def plans_of(precision: str, operation: Operation, turned: bool) -> list[Any]:
    """Those whose products are this precision's own."""
    found = all_patches(ARITHMETICS[precision], operation, HOPPER)
    return [
        plan for plan in found
        if getattr(plan, "turned", False) == turned and plan.arithmetic.name == precision
    ]  # fmt: skip


def beside(plans: list[Any]) -> list[Any]:
    """Those of some plans whose images lie beside each other; all, if there are none."""
    return [plan for plan in plans if plan.eights] or plans


def network() -> Network:
    made = Network("net", Pixels((3, 19, 26)), LAYERS, sources=SOURCES)
    return made.with_parameters(random_parameters(made, np.random.default_rng(0)))


def small_pictures() -> Network:
    """Pictures that leave much of a patch empty, so that several may lie beside each other; numbers
    of channels that leave half a word or most of a piece; taps that are apart."""
    layers = (
        Convolution(35, 1), ReLU(),
        Convolution(45, 3, padding=(1, 2), dilation=(1, 2)), Tanh(),
        Convolution(45, 3, padding=2, dilation=2), Add(), ReLU(),
        Convolution(51, 2), MaxPool(2),
        Convolution(38, 3, stride=(2, 1), padding=(1, 3, 1, 4), dilation=(1, 3)), AveragePool(2),
        Convolution(47, (1, 3), padding=(0, 1)), ReLU(),
        Convolution(32, 1), Flatten(), FullyConnected(700), FullyConnected(5), Softmax(),
    )  # fmt: skip
    sources = (*((number,) for number in range(5)), (5, 4), *((number,) for number in range(6, 18)))
    made = Network("small pictures", Pixels((3, 11, 12)), layers, sources=sources)
    return made.with_parameters(random_parameters(made, np.random.default_rng(0)))


def grouped() -> Network:
    """Channels in groups, so that a block reads one section of them: pieces of two words in fp16,
    four groups that may be two sections, a sum that something is added to, and panels."""
    layers = (
        Convolution(72, 1), Tanh(),
        Convolution(128, 3, padding=1, groups=2), MaxPool(2),
        Convolution(192, 3, padding=(1, 0, 1, 2), groups=4), ReLU(),
        Convolution(192, 3, padding=2, dilation=2, groups=2), Add(), Tanh(),
        Convolution(128, 2, stride=2, groups=2), Flatten(),
        FullyConnected(700), FullyConnected(5), Softmax(),
    )  # fmt: skip
    sources = (*((number,) for number in range(7)), (7, 6), *((number,) for number in range(8, 14)))
    made = Network("grouped", Pixels((3, 18, 21)), layers, sources=sources)
    return made.with_parameters(random_parameters(made, np.random.default_rng(0)))


def lines() -> Network:
    """Pictures of one row, whose positions are in a line: taps that are apart, strides, zeros on
    some sides only, a sum that something is added to; windows of 1x1; and panels."""
    layers = (
        Convolution(35, 1), ReLU(),
        Convolution(45, (1, 5), padding=(0, 2)), Tanh(),
        Convolution(45, (1, 3), padding=(0, 8), dilation=(1, 8)), Add(), ReLU(),
        Convolution(70, (1, 4), stride=(1, 3), padding=(0, 1, 0, 2)), ReLU(),
        Convolution(38, 1), Tanh(),
        Convolution(45, (1, 2), padding=(0, 5, 0, 3)), Flatten(),
        FullyConnected(700), FullyConnected(5), Softmax(),
    )  # fmt: skip
    sources = (*((number,) for number in range(5)), (5, 4), *((number,) for number in range(6, 16)))
    made = Network("lines", Pixels((3, 1, 149)), layers, sources=sources)
    return made.with_parameters(random_parameters(made, np.random.default_rng(0)))


def special(plans: list[Any]) -> list[Any]:
    """Those of some plans that read a section of the channels, or whose positions are in a line
    because pictures have one row; all, if there are none."""
    row = [plan for plan in plans if plan.line and plan.operation.source[1] == 1]
    return [plan for plan in plans if plan.sections > 1] or row or plans


def chosen(given: Network, precision: str, number: int) -> Choice:
    """A network's kernels, with patches wherever they can be: of all plans one or another."""
    arithmetic = ARITHMETICS[precision]
    found: list[Stacked | Patched | Connected] = []
    for operation in to_do(given.stages, HOPPER):
        plans = special(list(all_patches(arithmetic, operation, HOPPER)))
        if plans:
            found.append(plans[(number * 37 + 11 * operation.index) % len(plans)].chosen)
        elif operation.forms[0] == "panels" or operation.gives == "panels":
            found.append(Connected(1, HOPPER.most_few))
        else:
            _, arrangement = arranged(arithmetic, [operation], HOPPER, {})
            found.append(Stacked(1, *arrangement))
    return Choice(HOPPER.name, tuple(found))


@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    "given", [network(), small_pictures(), grouped(), lines()], ids=lambda each: each.name
)
def test_a_network_of_patches(given: Network, precision: str, number: int) -> None:
    generator = np.random.default_rng(number)
    made = build(given.stages, ARITHMETICS[precision], 90, chosen(given, precision, number))
    images = generator.integers(0, 256, (IMAGES, *given.input.shape), np.uint8)
    arithmetic = ARITHMETICS[precision]
    truth = reference.chain(given.stages, given.parameters, images, arithmetic.precision)
    output = interpret(made, given, images)
    assert compare(output, truth[-1])[1] is None
    patches = [each for each in made if isinstance(each, Patches)]
    assert len(patches) == {"net": 5, "small pictures": 6, "grouped": 4, "lines": 5}[given.name]
    if given.name == "grouped":
        assert all(each.sections in (2, 4) for each in patches)
    if given.name == "lines":
        assert all(each.line for each in patches)


def one_by_one() -> Network:
    """Pictures so large that one chunk of them is there at a time, or with strides four by four."""
    layers = (
        Convolution(128, 1), Convolution(128, 3, padding=12, dilation=12), Tanh(),
        Convolution(128, 8, stride=4), ReLU(), FullyConnected(5),
    )  # fmt: skip
    made = Network("one by one", Pixels((3, 40, 40)), layers)
    return made.with_parameters(random_parameters(made, np.random.default_rng(0)))


@pytest.mark.cuda
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    "given",
    [network(), small_pictures(), grouped(), lines(), one_by_one()],
    ids=lambda each: each.name,
)
def test_on_a_gpu(given: Network, precision: str, number: int) -> None:
    """More work than multiprocessors, so that blocks go on; and again, with less."""
    runtime = CudaRuntime(CUDA)
    if runtime.capability != 90:
        pytest.skip("no Hopper GPU")
    fused = FusedNetwork(runtime, "network", precision, given.stages, given.parameters,
                         chosen(given, precision, number))  # fmt: skip
    images = np.random.default_rng(number).integers(0, 256, (200, *given.input.shape), np.uint8)
    some = [*range(3), *range(195, 200)]
    precise = ARITHMETICS[precision].precision
    truth = reference.chain(given.stages, given.parameters, images[some], precise)[-1]
    out = runtime.allocate((200, *given.output_shape))
    for count in (200, 3, 200):
        out.fill(np.nan)
        fused(runtime.upload(images[:count]), out[:count])
    found = runtime.download(out)
    assert np.isfinite(found).all()
    assert compare(found[some], truth)[1] is None


# Constants that a kernel reads or writes by: a wrong one gives other results, or is caught.
OFFSETS = {
    "bias": 8, "weights": 32, "rows": 1, "pitch": 1, "planes_x": 1, "blocks_x": -1, "chunks": -1,
    "height": -1, "width": -1, "words": 4, "taps_x": 1, "stride_y": 1, "stride_x": 1, "top": 1,
    "left": 1, "result_y": -1, "result_x": -1, "out_words": 4, "filters": -8, "sums": (2,),
    "slots": -8, "tall": 1, "turns": 1, "stage_words": 4,
}  # fmt: skip


# The same where images lie beside each other, and taps are apart; and of sections of channels.
BESIDE = {"eights": 1, "apart_y": 1, "apart_x": 1, "at_once": 3}
IN_SECTIONS = {"sections": -1, "own_words": 2}
IN_A_LINE = {"line": -1, "pitch": -60, "planes_x": 1, "width": -1, "stride_x": 1, "left": 1,
             "result_x": -1, "blocks_y": -1, "down": 1}  # fmt: skip


@pytest.mark.parametrize("precision, turned", WAYS[2:])
@pytest.mark.parametrize(
    "given, index, offsets", [
        (network(), 3, OFFSETS), (small_pictures(), 1, OFFSETS | BESIDE),
        (grouped(), 1, IN_SECTIONS), (lines(), 3, IN_A_LINE),
    ],
    ids=["strides", "beside", "sections", "line"],
)  # fmt: skip
def test_every_wrong_constant_is_seen(
    given: Network, index: int, offsets: dict[str, Any], precision: str, turned: bool
) -> None:
    """Of a convolution that has strides, and zeros on some sides only; of one whose taps are apart,
    of images beside each other; and of one whose channels are in groups."""
    arithmetic, operation = ARITHMETICS[precision], to_do(given.stages, HOPPER)[index]
    filters, small = operation.summed[0], "eights" in offsets
    plan = next(
        each for each in special(plans_of(precision, operation, turned))
        if (each.eights if small else
            each.sections > 1 or each.line
            or (each.wide < filters < 2 * each.wide and not each.eights))
    )  # fmt: skip
    parameters, made = plan.parameters(given.parameters), patches_program(plan)
    channels, height, width = operation.source
    values = np.random.default_rng(0).normal(size=(IMAGES, height, width, channels))
    words = arithmetic.operands(values.astype(np.float32)[..., None])
    images = words.reshape(IMAGES, -1)
    right = run_patches(made, parameters, images)
    for name, more in offsets.items():
        if name == "taps_x" and precision == "fp32":
            continue  # it goes through a row of taps by its turns
        if small and name in ("stride_y", "filters"):
            continue  # which a single stride, and filters of one block, are not seen by
        wrong = replace(made, **{name: getattr(made, name) + more})
        try:
            found = run_patches(wrong, parameters, images)
        except (Mistake, IndexError, ValueError):
            continue
        assert not np.array_equal(found, right), name


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_is_not_finite_reaches_what_sees_it_and_nothing_else(precision: str) -> None:
    layers = (
        Convolution(32, 1),
        Convolution(64, 3, padding=1),
        ReLU(),
        MaxPool(2),
        Convolution(8, 1),
    )
    bare = Network("net", Pixels((3, 20, 20)), layers)
    given = bare.with_parameters(random_parameters(bare, np.random.default_rng(0)))
    arithmetic = ARITHMETICS[precision]
    operation = to_do(given.stages, HOPPER)[1]
    plans = list(all_patches(arithmetic, operation, HOPPER))[::5]
    assert plans
    for plan in plans:
        values = np.zeros((2, 20, 20, 32), np.float32)
        values[1, 6, 9, 3] = np.nan
        words = arithmetic.operands(values.reshape(2, 20, 20, -1, arithmetic.per_word))
        found = run_patches(
            patches_program(plan), plan.parameters(given.parameters), words.reshape(2, -1)
        )
        kind = np.float16 if precision == "fp16" else np.float32
        spoiled = np.isnan(found.view(kind)).reshape(2, 10, 10, 64).all(-1)
        seen = np.zeros((2, 10, 10), bool)
        seen[1, 2:4, 4:6] = True  # rows 5 to 7 and columns 8 to 10, pooled
        assert np.array_equal(spoiled, seen)
        assert not np.isnan(found.view(kind)).reshape(2, 10, 10, 64)[~seen].any()


@pytest.mark.parametrize("precision, turned", WAYS)
def test_kernels_compile_and_keep_sums_in_registers(precision: str, turned: bool) -> None:
    """One that is pooled, one that something is added to, one that gives panels; one that reads and
    writes images beside each other, word by word; one that reads a section of the channels; and one
    of positions in a line."""
    for given, index, number in (
        (network(), 1, 5), (network(), 2, 11), (network(), 5, 3), (small_pictures(), 2, 7),
        (grouped(), 1, 9), (lines(), 2, 4),
    ):  # fmt: skip
        operation = to_do(given.stages, HOPPER)[index]
        plans = beside(special(plans_of(precision, operation, turned)))
        plan = plans[number * len(plans) // 13]
        made = compile_cubin("patches", patches_text(plan, "patches"), "sm_90a")
        assert made.spilled_bytes < 100
        assert made.stack_bytes < 100


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_what_is_told_of_them(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is used is a share, of plans that are chosen more than a fifth, also where images lie
    beside each other; and lines are named."""
    monkeypatch.setattr("tilewright.runtime.nvrtc.missing", lambda: "not asked for")
    layers = (Convolution(256, 1), Convolution(256, 3, padding=1), Convolution(9, 1))
    small, made = Network("small", Pixels((3, 4, 4)), layers), []
    for given in (small, lines()):
        kernels = cut(given.stages, ARITHMETICS[precision], 90)
        made += [each for each in kernels if isinstance(each, Patches)]
        facts = explain(kernels, given.stages, "network", precision, "sm_90a")
        for kernel, told in zip(kernels, facts, strict=True):
            if isinstance(kernel, Patches):
                assert 0.2 < told.shares[0].used <= 1
                assert ("positions in a line" in told.arrangement) == kernel.line
    assert any(each.eights for each in made)


def test_kernels_that_cannot_be_are_refused() -> None:
    arithmetic, stages = ARITHMETICS["fp16"], network().stages
    operation = to_do(stages, HOPPER)[1]
    right = next(all_patches(arithmetic, operation, HOPPER)).chosen
    assert patches_as(right, arithmetic, operation, HOPPER)
    wrong = ({"images": 0}, {"groups": 3}, {"wide": 40}, {"wide": 288}, {"stages": 1},
             {"pictures": 9}, {"down": 40}, {"groups": 8, "images": 8}, {"images": 2},
             {"wide": 32, "turned": True}, {"sections": 2})  # fmt: skip
    for each in wrong:
        assert patches_as(structs.replace(right, **each), arithmetic, operation, HOPPER) is None
    assert patches_as(right, ARITHMETICS["fp32"], operation, HOPPER) is None
    assert patches_as(right, arithmetic, operation, GENERATIONS[80]) is None


def test_of_floats_in_parts_some_layers_are_better_whole() -> None:
    """Where the second parts find no room: the kernel is that of fp32."""
    operation, whole, parts = (
        to_do(one_by_one().stages, HOPPER)[1], ARITHMETICS["fp32"], ARITHMETICS["tf32x3"]
    )  # fmt: skip
    assert list(all_patches(ARITHMETICS["tf32"], operation, HOPPER))
    plans = list(all_patches(parts, operation, HOPPER))
    assert plans == list(all_patches(whole, operation, HOPPER)) != []
    assert all(patches_as(each.chosen, parts, operation, HOPPER) == each for each in plans)


def test_kernels_without_tensor_cores_that_cannot_be_are_refused() -> None:
    arithmetic, stages = ARITHMETICS["fp32"], network().stages
    operation = to_do(stages, HOPPER)[1]
    right = next(all_patches(arithmetic, operation, HOPPER)).chosen
    assert patches_as(right, arithmetic, operation, HOPPER)
    wrong = ({"images": 0}, {"groups": 0}, {"wide": right.wide + 4}, {"stages": 1}, {"own": 10},
             {"pictures": 9}, {"down": 40}, {"depth": 12}, {"high": 20}, {"turned": True},
             {"high": right.high + 1})  # fmt: skip
    for each in wrong:
        assert patches_as(structs.replace(right, **each), arithmetic, operation, HOPPER) is None
    assert patches_as(right, ARITHMETICS["tf32"], operation, HOPPER) is None
    assert patches_as(right, arithmetic, operation, GENERATIONS[80]) is None


def test_what_has_no_such_kernel() -> None:
    """Pixels, few channels, results of a network; channels and filters may be any number."""
    layers = (
        Convolution(31, 1), Convolution(33, 1), Convolution(7, 1), Convolution(64, 1),
        Convolution(64, 1),
    )  # fmt: skip
    stages = Network("net", Pixels((32, 8, 8)), layers).stages
    can = {
        name: [any(all_patches(ARITHMETICS[name], each, HOPPER)) for each in to_do(stages, HOPPER)]
        for name in ("fp16", "tf32", "fp32")
    }
    assert can == {
        "fp16": [False, False, True, False, False],
        "tf32": [False, False, True, False, False],
        "fp32": [False, True, True, False, False],
    }


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    "channels, filters, groups, sections", [
        (96, 192, 2, {1, 2}), (128, 256, 4, {1, 2, 4}), (192, 192, 6, {1, 2, 3, 6}),
        (256, 96, 2, {1}),  # 48 filters are no whole blocks on tensor cores
        (66, 128, 2, {1, 2}),  # half a word is left over in fp16
        (48, 128, 2, {1, 2}),  # too few for tensor cores
        (64, 64, 1, {1}),
    ],
)  # fmt: skip
def test_sections_are_whole_groups(
    channels: int, filters: int, groups: int, sections: set[int], precision: str
) -> None:
    layers = (
        Convolution(channels, 1), Convolution(filters, 3, padding=1, groups=groups),
        Convolution(8, 1),
    )  # fmt: skip
    stages = Network("net", Pixels((3, 16, 16)), layers).stages
    operation = to_do(stages, HOPPER)[1]
    plans = [
        each for each in all_patches(ARITHMETICS[precision], operation, HOPPER)
        if each.arithmetic.name == precision
    ]  # fmt: skip
    found = {each.sections for each in plans}
    if precision == "fp32" and filters == 96:
        sections = {1, 2}
    if (precision == "fp16" and channels == 66) or (precision != "fp32" and channels == 48):
        sections = {1}
    assert found == sections
    for each in plans:
        again = patches_as(each.chosen, ARITHMETICS[precision], operation, HOPPER)
        assert again == each


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_one_chunk_of_pictures_at_a_time(precision: str) -> None:
    """It is given back before the next is waited for; one after it, all would wait."""
    layers = Convolution(256, 1), Convolution(256, 3, padding=12, dilation=12), Convolution(8, 1)
    stages = Network("net", Pixels((3, 32, 32)), layers).stages
    operation = to_do(stages, HOPPER)[1]
    plans = list(all_patches(ARITHMETICS[precision], operation, HOPPER))
    alone = [plan for plan in plans if plan.pictures == 1 and plan.chunks > 1]
    assert alone
    for plan in alone:
        check_rings(patches_program(plan))


@pytest.mark.parametrize(
    "stride, fit", [((4000, 1), True), ((5000, 1), False), ((1, 8000), True), ((1, 9363), False)]
)
def test_places_that_the_table_has_no_room_for(stride: tuple[int, int], fit: bool) -> None:
    """A patch is eight times as far across as the stride, in 15 bits and 16."""
    layers = Convolution(32, 1), Convolution(32, 1, stride=stride), Convolution(8, 1)
    stages = Network("net", Pixels((3, 8 * stride[0], 8 * stride[1])), layers).stages
    arithmetic, operation = ARITHMETICS["tf32"], to_do(stages, HOPPER)[1]
    one = Patched(1, 1, 1, 1, 1, 32, 3, 1)
    assert (patches_as(one, arithmetic, operation, HOPPER) is not None) == fit
    assert bool(list(all_patches(arithmetic, operation, HOPPER))) == fit


def registers(plan: Patches, thread: int, unit: int) -> list[tuple[int, int, int, int]]:
    """What a lane's sums are, by where `wgmma` has them: patch, row and column in it, and filter,
    as weights are packed. Without tensor cores a unit is a row of the patch."""
    if isinstance(plan, PlainPatches):
        warp, eight = thread // 32, thread % 32 // 8
        filter_warps = plan.wide * plan.together // (4 * plan.own)
        patch = warp // filter_warps * plan.together + eight % plan.together
        group = warp % filter_warps * (4 // plan.together) + eight // plan.together
        return [(patch, unit, thread % 8, group * plan.own + f) for f in range(plan.own)]
    assert isinstance(plan, TensorPatches)
    lanes = (8, 2) if plan.turned else (4, 4, 2)
    packed = np.arange(plan.wide).reshape(-1, *lanes).swapaxes(1, 2).ravel()
    g, t, warp, group = thread % 32 // 4, thread % 4, thread // 32 % 4, thread // 128
    patch, band = group * plan.units + unit, 0
    if plan.turned:
        bands = plan.wide // 64
        strip, band = group * (plan.units // bands) + unit // bands, unit % bands
        patch = strip // plan.across * plan.down * plan.across + strip % plan.across
    found = []
    for i in range(plan.columns // 2):
        row, column = 16 * warp + g + 8 * (i // 2 % 2), i // 4 * 8 + 2 * t + i % 2
        position, own = (column, 64 * band + row) if plan.turned else (row, column)
        down, place = divmod(position, 64)
        found.append((patch + down * plan.across, *divmod(place, 8), int(packed[own])))
    return found


@pytest.mark.parametrize("precision", ["fp16", "tf32"])
def test_lanes_write_what_they_have(precision: str) -> None:
    """`put_columns` and `put_rows`, lane by lane: filters that follow each other."""
    layers = Convolution(64, 1), Convolution(192, 3, padding=1), Convolution(8, 1)
    stages = Network("net", Pixels((3, 24, 16)), layers).stages
    operation = to_do(stages, HOPPER)[1]
    for plan in (plans_of(precision, operation, False) + plans_of(precision, operation, True))[::9]:
        written = set()
        for thread, unit in itertools.product(range(128 * plan.groups), range(plan.units)):
            g, t, warp = thread % 32 // 4, thread % 4, thread // 32 % 4
            have = registers(plan, thread, unit)
            patch, y, x, _ = have[0]
            for i, held in enumerate(have):
                n = i // 4
                if plan.turned:
                    j, beside = divmod(i % 4, 2)
                    own = 64 * (unit % (plan.wide // 64)) + 16 * warp + 2 * g + j
                    assert held == (patch + n // 8 * plan.across, n % 8, 2 * t + beside, own)
                else:
                    half, j = divmod(i % 4, 2)
                    own = n // 4 * 32 + t * 8 + n % 4 * 2 + j
                    assert held == (patch, y + half, x, own)
                    assert (y, x) == (2 * warp, g)
            written.update(have)
        assert len(written) == plan.patches * 64 * plan.wide


# Convolutions that are pooled, added to, averaged, and whose results go into panels; of small
# pictures one that is added to, one that is pooled, one of few positions; one in two groups.
CASES = [
    *((network(), index) for index in (1, 2, 3, 5)),
    *((small_pictures(), index) for index in (2, 3, 5)),
    (grouped(), 1),
    *((lines(), index) for index in (1, 2, 3, 5)),
]


@pytest.mark.skipif(on_host.missing() is not None, reason=str(on_host.missing()))
@pytest.mark.parametrize("precision, turned", WAYS)
@pytest.mark.parametrize("given, index", CASES)
def test_what_lanes_write_is_what_was_computed(
    given: Network, index: int, precision: str, turned: bool
) -> None:
    """The kernel's own text for what becomes of sums, run here, against the interpreter."""
    arithmetic = ARITHMETICS[precision]
    operation = to_do(given.stages, HOPPER)[index]
    plans = beside(special(plans_of(precision, operation, turned)))
    plan = max(
        plans[index % len(plans) :: 5],
        key=lambda plan: (plan.sums[0] * plan.column_blocks, plan.wide),
    )
    made = replace(patches_program(plan), before=(), activations=())
    generator, count = np.random.default_rng(0), plan.images + 1
    added = None
    if made.added:
        size = count, made.result_y * made.result_x, made.out_words * arithmetic.per_word
        own = generator.normal(size=size).reshape(count, -1, arithmetic.per_word)
        own = own.astype(np.float32)
        added = arithmetic.operands(own).reshape(count, -1)
    rows = in_whole_panels(count) if made.to_panels else count
    ours, theirs = (np.zeros((rows, made.result_words), np.uint32) for _ in range(2))
    for number in range(plan.works(count)):
        work = Work(made, np.zeros(1, np.uint32), np.zeros((count, 1)), number)
        positions = 8 * plan.tall
        sums = generator.normal(size=(plan.patches, positions, plan.wide)).astype(np.float32)
        held = np.zeros((128 * plan.groups, *plan.sums), np.float32)
        for thread, unit in itertools.product(range(128 * plan.groups), range(plan.sums[0])):
            for i, (patch, row, column, own) in enumerate(registers(plan, thread, unit)):
                held[thread, unit, i] = sums[patch, 8 * row + column, own]
        on_host.put(made, held, ours, added, number, count)
        out = Memory("the results", theirs.size, 0)
        out.words = theirs.reshape(-1)
        work.put(out, sums, added)
    assert ours.any() and np.array_equal(ours, theirs)


@pytest.mark.skipif(on_host.missing() is not None, reason=str(on_host.missing()))
@pytest.mark.parametrize("kernel, stride", [((3, 1), 1), ((1, 2), 1), ((3, 2), 2), ((2, 4), 3)])
def test_threads_add_up_what_their_filters_see(kernel: tuple[int, int], stride: int) -> None:
    """The kernel's own text for sums without tensor cores, run here on pictures and weights as the
    interpreter lays them: against the interpreter's sums."""
    layers = Convolution(20, 1), Convolution(192, kernel, stride=stride), Convolution(4, 1)
    bare = Network("net", Pixels((3, 23, 29)), layers)
    given = bare.with_parameters(random_parameters(bare, np.random.default_rng(0)))
    operation = to_do(given.stages, HOPPER)[1]
    # All of it has come when it is looked at: nothing comes in its place.
    plans = [
        plan
        for plan in plans_of("fp32", operation, False)
        if plan.chunks <= plan.pictures and plan.chunks * plan.turns <= plan.stages
    ]
    assert plans and (stride > 1 or {plan.together for plan in plans} == {1, 2, 4})
    for plan in {plan.together: plan for plan in plans}.values():
        made, parameters = patches_program(plan), plan.parameters(given.parameters)
        images = np.random.default_rng(1).normal(size=(2, 23 * 29 * 20)).astype(np.float32)
        work = Work(made, parameters, images.view(np.uint32), plan.works(2) - 1)
        weights = np.concatenate([
            work.stage(chunk, turn) for chunk in range(plan.chunks) for turn in range(plan.turns)
        ])  # fmt: skip
        pictures = np.zeros((plan.chunks, plan.slots, plan.pixel_bytes // 4), np.uint32)
        for chunk in range(plan.chunks):
            pictures[chunk, :, : plan.depth] = work.fetched(chunk)[0]
        bias = parameters[made.bias + work.column * plan.wide :][: plan.wide]
        found = on_host.add_up(made, weights, pictures, bias)
        expected = work.sums()
        right = np.zeros_like(found)
        for thread, unit in itertools.product(range(128 * plan.groups), range(plan.sums[0])):
            for i, (patch, row, column, own) in enumerate(registers(plan, thread, unit)):
                right[thread, unit, i] = expected[patch, 8 * row + column, own]
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(on_host.missing() is not None, reason=str(on_host.missing()))
@pytest.mark.parametrize("chunks, kernel, stride", [(1, (1, 5), 1), (2, (1, 2), 1), (1, (2, 2), 2)])
@pytest.mark.parametrize("precision, turned", [way for way in WAYS if way[0] != "fp32"])
def test_tensor_cores_add_up_what_their_filters_see(
    precision: str, turned: bool, chunks: int, kernel: tuple[int, int], stride: int
) -> None:
    """The same with tensor cores, which look for operands by addresses; of parts, too, of whose
    sums some are added up by threads."""
    arithmetic = ARITHMETICS[precision]
    channels = (32 * chunks - 12 * (chunks - 1)) * arithmetic.per_word
    layers = Convolution(channels, 1), Convolution(96, kernel, stride=stride), Convolution(4, 1)
    bare = Network("net", Pixels((3, 17, 21)), layers)
    given = bare.with_parameters(random_parameters(bare, np.random.default_rng(0)))
    plans = [
        plan for plan in plans_of(precision, to_do(given.stages, HOPPER)[1], turned)
        if plan.chunks <= plan.pictures and plan.chunks * plan.turns <= plan.stages
        and not plan.eights
    ]  # fmt: skip
    plan = max(plans, key=lambda plan: (plan.units, plan.groups, plan.wide))
    assert plan.chunks == chunks
    made, parameters = patches_program(plan), plan.parameters(given.parameters)
    values = np.random.default_rng(1).normal(size=(2, 17 * 21 * channels)).astype(np.float32)
    images = arithmetic.operands(values[..., None] if arithmetic.per_word == 1 else
                                 values.reshape(2, -1, 2)).reshape(2, -1)  # fmt: skip
    work = Work(made, parameters, images, plan.works(2) - 1)
    weights = np.concatenate([
        work.stage(chunk, turn) for chunk in range(plan.chunks) for turn in range(plan.turns)
    ])  # fmt: skip
    # Turned around pieces of a row of eight are turned back.
    pictures = np.stack([[turned_rows(part) for part in work.fetched(chunk)]
                         for chunk in range(plan.chunks)])  # fmt: skip
    bias = parameters[made.bias + work.column * plan.wide :][: plan.wide]
    found, expected = on_host.add_up(made, weights, pictures, bias), work.sums()
    right = np.zeros_like(found)
    for thread, unit in itertools.product(range(128 * plan.groups), range(plan.sums[0])):
        for i, (patch, row, column, own) in enumerate(registers(plan, thread, unit)):
            right[thread, unit, i] = expected[patch, 8 * row + column, own]
    np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5)


def test_neighbours_pieces_are_in_different_banks() -> None:
    operation = to_do(network().stages, HOPPER)[1]
    plans = plans_of("fp32", operation, False)
    assert {plan.depth for plan in plans} > {16}
    for plan in plans:
        assert len({each * plan.pixel_bytes // 16 % 8 for each in range(8)}) == 8


def whole_kernel(
    given: Network, index: int, number: int
) -> tuple[Any, np.ndarray, np.ndarray | None]:
    """A plan without tensor cores, one of all; pictures, and what is added."""
    operation = to_do(given.stages, HOPPER)[index]
    plans = beside(special(plans_of("fp32", operation, False)))
    # Of many images every fiber would take half a minute.
    most = max(16, min(plan.images for plan in plans))
    plans = [plan for plan in plans if plan.images <= most]
    plan = plans[number * 31 % len(plans)]
    generator, count = np.random.default_rng(number), plan.images + 1
    channels, height, width = operation.source
    images = generator.normal(size=(count, height * width * channels)).astype(np.float32)
    added = None
    if operation.added:
        added = generator.normal(size=(count, plan.result_words)).astype(np.float32).view(np.uint32)
    return plan, images.view(np.uint32), added


@pytest.mark.skipif(on_host.missing() is not None, reason=str(on_host.missing()))
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("given, index", CASES)
def test_a_whole_kernel_whoever_goes_on_first(given: Network, index: int, number: int) -> None:
    """All threads of a block as fibers: rings, sums and results are the kernel's own text."""
    plan, images, added = whole_kernel(given, index, number)
    deeper = (replace(plan, pictures=each) for each in (4, 3)) if number else ()
    plan = next((each for each in deeper if each.fits(HOPPER)), plan)
    # Where what is read is rounded, to itself here, later chunks come meanwhile.
    made = replace(patches_program(plan), rounds=number == 1)
    parameters = plan.parameters(given.parameters)
    expected = run_patches(made, parameters, images, added).view(np.float32)
    for blocks in (1, 3):
        found = on_fibers.run(made, parameters, images, added, blocks=blocks, seed=blocks,
                              shared_bytes=plan.shared_bytes)  # fmt: skip
        assert not isinstance(found, str), found
        np.testing.assert_allclose(found.view(np.float32), expected, rtol=1e-4, atol=1e-4)


MISTAKES = {
    "warps give back what lanes still read": ("            __syncwarp();\n", ""),
    "a warp too few is waited for": (
        "begin_barrier(weights_empty + 8 * stage, ADDING / 32);",
        "begin_barrier(weights_empty + 8 * stage, ADDING / 32 - 1);",
    ),
    "pictures are not waited for": (
        "wait_for(this->pictures_full + 8 * turns.pictures.stage, turns.pictures.phase);", "",
    ),
    "weights are not waited for": (
        "wait_for(this->weights_full + 8 * turns.weights.stage, turns.weights.phase);", "",
    ),
    "a picture is given back after its first taps": ("if (tap == L::TURNS - 1)", "if (tap == 0)"),
    "a picture is fetched over one that is read": (
        "wait_for(pictures_empty + 8 * turn.stage, turn.phase ^ 1);", "",
    ),
}  # fmt: skip


@pytest.mark.skipif(on_host.missing() is not None, reason=str(on_host.missing()))
@pytest.mark.parametrize("change", [None, *MISTAKES.values()], ids=["none", *MISTAKES])
def test_a_mistake_shows_in_some_run(change: tuple[str, str] | None) -> None:
    """With few stages and many taps, so that rings are full and empty in turn."""
    given = network()
    operation = to_do(given.stages, HOPPER)[5]
    plans = [plan for plan in plans_of("fp32", operation, False) if plan.chunks > plan.pictures]
    plan = min(plans, key=lambda plan: (plan.stages, plan.threads, plan.patches * plan.wide))
    made, parameters = patches_program(plan), plan.parameters(given.parameters)
    channels, height, width = operation.source
    values = np.random.default_rng(0).normal(size=(plan.images, height * width * channels))
    images = values.astype(np.float32).view(np.uint32)
    expected = run_patches(made, parameters, images).view(np.float32)

    def right(seed: int) -> bool:
        found = on_fibers.run(made, parameters, images, blocks=1, seed=seed, change=change,
                              shared_bytes=plan.shared_bytes)  # fmt: skip
        return not isinstance(found, str) and np.allclose(
            found.view(np.float32), expected, rtol=1e-4, atol=1e-4
        )

    assert all(right(seed) for seed in range(8)) == (change is None)
