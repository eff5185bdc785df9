"""Layers that are printed once, in a loop: each turn is what was printed for it alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from unittest import mock

import pytest
from benchmarks.strangers import strangers

from tilewright.fuse.cuda import emit_repeats
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.cut import cut, sources
from tilewright.fuse.cuda.emit_repeats import Turn, lines_of, repeated
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
    """The kernel's lines, with every turn of a loop over layers in full, and constants in place of
    structs' names."""
    table = "".join(re.findall(r"^__constant__ int layers\[\]\[\d+\] = (.*);$", text, re.M))
    rows = [row.split(", ") for row in re.findall(r"\{([\d, ]+)\}", table)]
    structs = dict(re.findall(r"^struct (\w+) \{(.*?)^\};", text, re.M | re.S))
    found: list[str] = []
    lines = iter(text[text.index('extern "C"') :].splitlines())
    for line in lines:
        if line == "        #pragma unroll 1":
            assert f"layer < {len(rows)};" in next(lines)
            inside = list(iter(lambda: next(lines)[12:], ""))
            inside = inside[1:]  # the first is for the compiler
            for row in rows:
                found += chosen(iter(inside), row)
        else:
            found.append(line.strip())
    return [
        re.sub(r"\w+", lambda m: structs.get(m[0], m[0]), for_its_own(line, structs))
        for line in found
    ]


def chosen(lines: Iterator[str], row: list[str]) -> Iterator[str]:
    """What a turn of the loop does, with its row of the table in place."""
    for line in lines:
        if found := re.fullmatch(r"switch \(layers\[layer\]\[(\d+)\]\) \{", line):
            wanted = False
            for case in iter(lambda: next(lines), "}"):
                if case.startswith("case "):
                    wanted = case == f"case {row[int(found[1])]}:"
                elif wanted and case != "    break;":
                    yield looked_up(case, row)
        else:
            yield looked_up(line, row)


def looked_up(line: str, row: list[str]) -> str:
    return re.sub(r"layers\[layer\]\[(\d+)\]", lambda m: row[int(m[1])], line).strip()


def for_its_own(line: str, structs: dict[str, str]) -> str:
    """A call for one of several layers as that layer's own."""
    found = re.fullmatch(r"(convolve\w*)<(\w+, [\w, ]+)>\((.*, warp)(, .*), (\d+)\);", line)
    if not found:
        return line
    name, layers, most, added, which = found.groups()
    layer = layers.split(", ")[int(which)]
    return f"{name}<{layer}>({most}{added if 'ADDED = 1' in structs[layer] else ''});"


@pytest.mark.parametrize("network", ["deep", "resnet20"])
@pytest.mark.parametrize("precision", ["fp16", "tf32", "fp32"])
def test_every_turn_is_what_was_printed_for_it_alone(network: str, precision: str) -> None:
    looped = texts(NETWORKS[network], precision)
    with mock.patch.object(emit_repeats, "LEAST_SAVED", 100):
        alone = texts(NETWORKS[network], precision)
    for one, other in zip(looped, alone, strict=True):
        assert "__constant__" not in other
        assert one_by_one(one) == one_by_one(other)
    calls = [len(re.findall(r"convolve<Layer", "".join(each))) for each in (looped, alone)]
    assert calls[0] <= 0.8 * calls[1] and any("__constant__" in each for each in looped)


def test_layers_whose_sums_are_alike_share_them() -> None:
    """A residual block's two convolutions, of which the second adds the block's input."""
    one, *_ = texts(NETWORKS["resnet20"], "fp16")
    assert re.search(r"convolve<Layer\d+, Layer\d+>\(.*, own \+ .*, layers\[layer\]\[\d+\]\);", one)
    assert not re.search(r"convolve<Layer\d+, ", "".join(texts(NETWORKS["wide-resnet"], "fp16")))


def test_layers_that_differ_are_printed_one_after_the_other() -> None:
    assert not any("__constant__" in text for text in texts(NETWORKS["vgg"], "fp16"))


def turn(layer: str, at: int, *after: str) -> Turn:
    return Turn([f"f<{layer}>(own + {at}, thread);"], [*after, "wait();"])


def test_a_layer_less_is_no_loop_and_two_are() -> None:
    two = [turn("A", 0), turn("A", 50)]
    assert repeated(two) is None
    loop = repeated([*two, turn("A", 70)])
    assert loop
    assert loop.table == "__constant__ int layers[][1] = {{0}, {50}, {70}};"
    assert loop.lines[3:] == ["    f<A>(own + layers[layer][0], thread);", "    wait();", "}"]


def test_only_places_may_differ() -> None:
    assert repeated([turn("A", 0), turn("B", 50), turn("C", 0)]) is None
    assert repeated([turn("A", 0), Turn(["f<A>(out, thread);"], []), turn("A", 0)]) is None


def test_a_loop_is_not_for_a_few_of_many() -> None:
    between = [turn(f"B{number}", 0) for number in range(6)]
    assert repeated([turn("A", 0), turn("A", 1), *between[:5], turn("A", 2)])
    assert repeated([turn("A", 0), turn("A", 1), *between, turn("A", 2)]) is None


def test_what_is_before_and_after_stays_outside() -> None:
    first, last = turn("B", 0), turn("C", 0)
    loop = repeated([first, *[turn("A", 10 * (number % 2)) for number in range(6)], last])
    assert loop
    assert loop.table.endswith("{{0}, {10}, {0}, {10}, {0}, {10}};")
    assert loop.lines[:2] == lines_of([first]) and loop.lines[-2:] == lines_of([last])


def test_a_turn_chooses_what_it_does_and_what_comes_after() -> None:
    """Places that stay are in no table."""
    blocks = [turn("A", 0, "zeros(own + 5);"), turn("B", 10), turn("A", 20, "zeros(own + 5);")]
    loop = repeated([*blocks, turn("B", 10), turn("A", 30)])
    assert loop
    rows = "{{0, 0, 0}, {1, 0, 1}, {0, 20, 0}, {1, 0, 1}, {0, 30, 1}}"
    assert loop.table == f"__constant__ int layers[][3] = {rows};"
    assert loop.lines[3:] == [
        "    switch (layers[layer][0]) {",
        "    case 0:",
        "        f<A>(own + layers[layer][1], thread);",
        "        break;",
        "    case 1:",
        "        f<B>(own + 10, thread);",
        "        break;",
        "    }",
        "    switch (layers[layer][2]) {",
        "    case 0:",
        "        zeros(own + 5);",
        "        break;",
        "    }",
        "    wait();",
        "}",
    ]
