"""What the guide to both compilers says is so, and its exercise runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tilewright.fuse
from tilewright.fuse.cpu.schedule import by_channels, by_images
from tilewright.fuse.cpu.tiles import Target
from tilewright.fuse.cuda import arrange
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.generations import HOPPER
from tilewright.fuse.cuda.limits import lane_registers
from tilewright.fuse.cuda.pictures import BANKS, runs
from tilewright.fuse.cuda.program import program
from tilewright.fuse.cuda.stack import Stack
from tilewright.fuse.cuda.steps import Border, Convolve, Fill, Softmax, Together
from tilewright.fuse.cuda.to_do import to_do
from tilewright.model import zoo

FOLDER = Path(tilewright.fuse.__file__).parent
GUIDE = (FOLDER / "README.md").read_text()
WORDS = " ".join(GUIDE.replace("│", " ").split())
NETWORK = zoo.network("cifar10")


@pytest.fixture(scope="module")
def plan() -> Stack:
    found, _ = arrange.arranged(ARITHMETICS["fp16"], to_do(NETWORK.stages, HOPPER), HOPPER)
    return found


def said(*phrases: str) -> None:
    for phrase in phrases:
        assert phrase in WORDS, phrase


def test_who_works_where(plan: Stack) -> None:
    first, second, floats = plan.arenas
    said(
        f"{plan.groups} groups of {plan.warps} warps, {plan.threads} threads",
        f"shared memory, {plan.shared_bytes:,} bytes",
        f"{plan.shared_words:,} words",
        f"{plan.group_words:,} w.",
        f"0 {first:,} {first + second + floats:,} {plan.arena_words:,} {plan.group_words:,}",
        " and ".join(f"{plan.held} x {apart}" for apart in plan.apart.values()),
        f"ahead: {plan.staged_words}",
    )


def test_how_a_picture_lies(plan: Stack) -> None:
    phase = plan.phases[1]
    source = phase.source
    said(
        f"{source.channels} channels, {source.words} words a pixel;",
        f"pixels are {source.pitch} words apart",
        f"row of {source.across} pixels (2 zeros, 16 pixels, 2 zeros), {source.row} words; "
        f"{source.rows} rows; 8 words of slack: {source.size:,} words",
    )
    assert phase.shares
    tops = [source.place(*pixel) for pixel in phase.shares.reads[0][:8]]
    said("word " + " ".join(map(str, tops)))
    banks = [f"{top % BANKS}-{top % BANKS + 3}" for top in tops]
    said("banks " + " ".join(banks))
    assert len({(top + lane) % BANKS for top in tops for lane in range(4)}) == BANKS


def test_who_computes_what(plan: Stack) -> None:
    phase = plan.phases[1]
    shares = phase.shares
    assert shares
    taps_y, taps_x = phase.operation.window.taps
    count, full, half = runs(plan.arithmetic, phase.source, taps_x, shares.reads)
    assert (count, full, half, shares.units) == (5, 1, 0, plan.warps)
    products = taps_y * shares.rows * shares.columns
    sums, weights = 4 * shares.rows * shares.columns, 2 * taps_y * shares.columns
    assert shares.registers == sums + weights + 8
    said(
        f"16 columns x {shares.rows} rows x {8 * shares.columns} filters",
        f"the {shares.input_rows} rows of input under its {shares.rows} rows of sums",
        f"{products} products a step, {count * products} a unit",
        f"{sums} for sums, {weights} for weights, 8 for a row of input; with "
        f"{HOPPER.other_registers} for everything else {shares.registers + HOPPER.other_registers} "
        f"of the {lane_registers(plan.warps * plan.groups)} that",
        f"{phase.weight_words:,} words in all",
        f"{plan.parameter_words['conv2.weight']} + ((i * 5 + ky) * 3 + n) * 64",
    )
    useful = phase.operation.summed[0] * 16 * 16 * 16 * 25
    assert f"{useful / (shares.units * count * products * 16 * 8 * 16):.1%}" == "83.3%"
    order = [x for _, x in next(iter(shares.tiles)) if x is not None]  # type: ignore[misc]
    said("column " + " ".join(map(str, order)))


def test_the_list_of_steps(plan: Stack) -> None:
    made = program(plan, NETWORK.input, "uint8")
    fetch, _, clear, *_ = made.once
    said(f"FetchParameters {fetch.bytes:,} bytes · FetchImage · Clear {clear.words:,} words")
    *single, together = made.item
    assert isinstance(together, Together)
    said(f"Together, after {together.most} images and after the last one")
    for step in (*single, *together.steps):
        if isinstance(step, Convolve) and step.target.at is not None:
            apart = f" + {step.target.apart} for each image held" if step.target.apart else ""
            said(f"Convolve {step.index}, {step.at:,} → {step.target.at:,}{apart}")
        elif isinstance(step, Softmax):
            said(f"Softmax, {step.at:,} → device memory")
        elif isinstance(step, Border):
            said(f"Border {step.index}")
        elif isinstance(step, Fill):
            said(f"Fill {step.form}, {step.staged:,} → {step.at}")
    second = [step for step in made.item if isinstance(step, Convolve)][1]
    target = second.target
    said(
        f"{target.out_pixel} words a pixel, {target.out_row} a row, the first at word "
        f"{target.origin}",
        f"own + {second.at}, shared + {second.weights}, reinterpret_cast<const float*>(shared + "
        f"{second.bias}), tables + {second.tables}, own + {target.at}, warp",
        f"more than {HOPPER.most_connected:,} weights",
    )


def test_on_a_cpu() -> None:
    wide, narrow = (by_images(NETWORK, Target(*each)) for each in ((16, 32), (8, 16)))
    group, other = wide.groups[1], narrow.groups[1]
    assert [(b.width, b.count) for b in group.blocks] == [(5, 4)]
    assert [(b.width, b.count) for b in other.blocks] == [(3, 6), (2, 1)]
    assert group.tile == other.tile == (2, 2)
    assert wide.pictures[1].pitch == 17 * 16
    assert [(s.first, s.last) for s in group.rows] == [(0, 1), (1, 7), (7, 8)]
    said(f"{group.loads_per_fma:.2f} loads for each", f"{group.executed_flops / 1e6:.2f} of 4.10")
    few = by_channels(NETWORK, Target(16, 32)).groups[1]
    assert (few.tile, few.blocks[-1].packed) == ((2, 6), 1)
    said("tiles of 2x6 positions", "8,020 floats")


def test_files_that_are_named_are_all_there_are() -> None:
    on_gpu, on_cpu = GUIDE.split("\n## On a CPU\n")
    for part, guide in (("cuda", on_gpu), ("cpu", on_cpu)):
        for file in (FOLDER / part).iterdir():
            if file.suffix in (".py", ".cuh") and file.name != "__init__.py":
                assert f"`{file.name}`" in guide, f"{part}/{file.name}"


def test_the_exercise(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrange, "SHAPES", arrange.SHAPES)  # it is changed, and put back
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE, re.S)
    exec(compile(code, "README.md", "exec"), {"__name__": "exercise"})
    *barriers, shape, size = capsys.readouterr().out.splitlines()
    assert all("thread" in line for line in barriers)
    (shown,) = re.findall(r"^    (step \d+: .*\n    .*)$", GUIDE, re.M)
    assert shown.replace("\n    ", " ") in barriers
    assert shape == "8 2 True"
    assert size.endswith("lines for the compiler")
