"""Steps that are printed once, in a loop: each turn is what was printed for it alone."""

from __future__ import annotations

import re
from unittest import mock

import pytest
from benchmarks.strangers import strangers

from tilewright.fuse.cuda import emit_repeats
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.cut import cut, sources
from tilewright.fuse.cuda.emit_repeats import Printed, repeated
from tilewright.fuse.cuda.run import kernel_text
from tilewright.model.network import Network

NETWORKS = {network.name: network for network in strangers()}


def texts(network: Network, precision: str) -> list[str]:
    plans = cut(network.stages, ARITHMETICS[precision], 90)
    return [
        kernel_text(plan, "network", network.input, source)
        for plan, source in zip(plans, sources(plans, "uint8"), strict=True)
    ]


def one_by_one(text: str) -> list[str]:
    """The kernel's lines, with every turn of a loop over places in full, and constants in place of
    structs' names."""
    rows = {
        name: [row.split(", ") for row in re.findall(r"\{([\d, ]+)\}", table)]
        for name, table in re.findall(r"^__constant__ int (\w+)\[\]\[\d+\] = (.*);$", text, re.M)
    }
    structs = dict(re.findall(r"^struct (\w+) \{(.*?)^\};", text, re.M | re.S))
    found: list[str] = []
    lines = iter(text[text.index('extern "C"') :].splitlines())
    for line in lines:
        if line.strip() == "#pragma unroll 1":
            turns = int(re.findall(r"layer < (\d+);", next(lines))[0])
            inside = list(iter(lambda: next(lines), "        }"))
            for turn in range(turns):
                for each in inside:
                    found.append(re.sub(r"(places\d+)\[layer\]\[(\d+)\]",
                                        lambda m: rows[m[1]][turn][int(m[2])], each[4:]))  # noqa: B023  # fmt: skip
        else:
            found.append(line)
    return [re.sub(r"\w+", lambda m: structs.get(m[0], m[0]), line) for line in found]


@pytest.mark.parametrize("precision", ["fp16", "tf32", "fp32"])
def test_every_turn_is_what_was_printed_for_it_alone(precision: str) -> None:
    deep = NETWORKS["deep"]
    looped = texts(deep, precision)[0]
    with mock.patch.object(emit_repeats, "LEAST_TURNS", 100):
        alone = texts(deep, precision)[0]
    assert "__constant__" in looped and "__constant__" not in alone
    assert len(re.findall("convolve<", looped)) < 5 < len(re.findall("convolve<", alone))
    assert one_by_one(looped) == one_by_one(alone)


def test_layers_that_differ_are_printed_one_after_the_other() -> None:
    assert not any("__constant__" in text for text in texts(NETWORKS["vgg"], "fp16"))


def call(number: int, at: int, rows: int = 8) -> Printed:
    return Printed(
        [f"struct Layer{number} {{ ROWS = {rows} }};"], [f"f<Layer{number}>(own + {at})"]
    )


def test_two_turns_are_no_loop_and_three_are() -> None:
    two = [call(1, 0), call(2, 50)]
    assert repeated(two) == two
    (loop,) = repeated([*two, call(3, 70)])
    table = "__constant__ int places0[][1] = {{0}, {50}, {70}};"
    assert loop.declared == [*call(1, 0).declared, table]
    assert loop.lines[2] == "    f<Layer1>(own + places0[layer][0])"


def test_only_places_may_differ() -> None:
    steps = [call(1, 0), call(2, 50, rows=4), call(3, 0)]
    assert repeated(steps) == steps
    steps = [call(1, 0), Printed(call(2, 0).declared, ["f<Layer2>(out)"]), call(3, 0)]
    assert repeated(steps) == steps


def test_places_that_stay_are_in_no_table() -> None:
    """By turns from one to the other and back; what is before and after stays outside."""
    back_and_forth = [call(number, 10 * (number % 2)) for number in range(6)]
    barrier = Printed([], ["wait()"])
    first, loop, last = repeated([barrier, *back_and_forth, barrier])
    assert (first, last) == (barrier, barrier)
    assert loop.declared == [*call(0, 0).declared, "__constant__ int places1[][1] = "
                             "{{0}, {10}, {0}, {10}, {0}, {10}};"]  # fmt: skip
    pairs = [step for _ in range(3) for step in (call(0, 0), call(1, 10, rows=4))]
    (loop,) = repeated(pairs)
    assert loop.declared == [*call(0, 0).declared, *call(1, 10, rows=4).declared]
    assert loop.lines[2:4] == ["    f<Layer0>(own + 0)", "    f<Layer1>(own + 10)"]
