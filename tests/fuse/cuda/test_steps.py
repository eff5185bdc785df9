"""Mistakes planted in the list of steps that a kernel's text is printed from: all are caught.

Without a GPU: the interpreter runs the same list. What gives wrong numbers is found by comparison
with the reference, what a GPU would leave to chance by the memory that steps work on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.fuse.cuda.interpreter import run_program
from tests.fuse.cuda.memory import Memory, Mistake
from tilewright.fuse.cuda import arrange
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.arrange import Arrangement, arranged, stack_as
from tilewright.fuse.cuda.cut import cut
from tilewright.fuse.cuda.emit_stack import program_text
from tilewright.fuse.cuda.generations import GENERATIONS, HOPPER
from tilewright.fuse.cuda.program import program
from tilewright.fuse.cuda.run import kernel_text
from tilewright.fuse.cuda.stack import Stack
from tilewright.fuse.cuda.steps import (
    Arrived,
    Barrier,
    Blank,
    Border,
    Clear,
    Committed,
    Convolve,
    Each,
    FetchImage,
    FetchParameters,
    Fill,
    Outside,
    Program,
    Softmax,
    Step,
    Target,
    Together,
    Wide,
)
from tilewright.fuse.cuda.to_do import to_do
from tilewright.model.layers import (
    AveragePool,
    Convolution,
    FullyConnected,
    Layer,
    MaxPool,
    Pixels,
    ReLU,
    Shape,
)
from tilewright.model.layers import Softmax as SoftmaxLayer
from tilewright.model.network import Network
from tilewright.truth import reference
from tilewright.truth.attempt import compare
from tilewright.truth.trials import random_parameters

PRECISIONS = list(ARITHMETICS)


class Case(NamedTuple):
    """A kernel of a whole network, images, and what it makes of them."""

    network: Network
    plan: Stack
    made: Program
    images: np.ndarray
    found: np.ndarray

    def problem(self, made: Program) -> str | None:
        """What is wrong with other steps, if anything is."""
        try:
            found = run_program(made, self.plan, self.network, self.images)
        except Mistake as mistake:
            return str(mistake)
        return None if np.array_equal(found, self.found) else "other results"

    def changed(self, index: int, *steps: Step) -> Program:
        """Some step of an item replaced by others, or by none."""
        item = self.made.item
        return replace(self.made, item=(*item[:index], *steps, *item[index + 1 :]))

    @property
    def last(self) -> tuple[int, Together]:
        """What is done for several images, and where it stands."""
        (index,) = self.places(Together)
        found = self.made.item[index]
        assert isinstance(found, Together)
        return index, found

    def places(self, kind: type) -> list[int]:
        return [index for index, step in enumerate(self.made.item) if isinstance(step, kind)]


def case(precision: str, shape: Shape, layers: tuple[Layer, ...], kind: Any = np.uint8) -> Case:
    network, generator = Network("net", Pixels(shape), layers), np.random.default_rng(0)
    network = network.with_parameters(random_parameters(network, generator))
    images = generator.integers(0, 256, (2, *shape)).astype(kind)
    (plan,) = cut(network.stages, ARITHMETICS[precision], 90)
    assert isinstance(plan, Stack)
    made = program(plan, network.input, "uint8" if kind is np.uint8 else "float32")
    found = run_program(made, plan, network, images)
    truth = reference.chain(
        network.stages, network.parameters, images, ARITHMETICS[precision].precision
    )[-1]
    assert compare(found.reshape(truth.value.shape), truth)[1] is None
    return Case(network, plan, made, images, found)


def usual(precision: str) -> Case:
    """Pixels fetched ahead, borders, pooling inside a sum and by itself, a softmax."""
    layers = (
        Convolution(10, 3, padding=1), ReLU(), MaxPool(2), Convolution(6, 3, padding=1),
        AveragePool(3, stride=1), FullyConnected(5), SoftmaxLayer(),
    )  # fmt: skip
    return case(precision, (3, 12, 12), layers)


@pytest.fixture(scope="module", params=PRECISIONS)
def whole(request: pytest.FixtureRequest) -> Case:
    return usual(request.param)


def test_the_steps_are_what_is_printed(whole: Case) -> None:
    text = kernel_text(whole.plan, "network", whole.network.input, "uint8")
    assert program_text(whole.made, "network") == text
    kinds = {type(step) for step in (*whole.made.once, *whole.made.item)}
    assert kinds == {
        Clear, FetchParameters, FetchImage, Arrived, Barrier, Fill, Border, Convolve, Each, Together
    }  # fmt: skip


def test_every_barrier_is_missed(whole: Case) -> None:
    barriers = whole.places(Barrier)
    assert len(barriers) == 5
    for index in barriers:
        assert "thread" in str(whole.problem(whole.changed(index))), index
    last, together = whole.last
    scores, _, softmax = together.steps
    without = replace(together, steps=(scores, softmax))
    assert "thread" in str(whole.problem(whole.changed(last, without)))
    *once, barrier = whole.made.once
    assert isinstance(barrier, Barrier)
    assert whole.problem(replace(whole.made, once=tuple(once)))


def test_every_barrier_is_missed_where_nothing_is_fetched_ahead() -> None:
    layers = (Convolution(6, 3, padding=1), ReLU(), Convolution(4, 3), FullyConnected(3))
    small = case("fp16", (3, 7, 7), layers, np.float32)
    assert not small.places(FetchImage)
    for index in small.places(Barrier):
        assert "thread" in str(small.problem(small.changed(index))), index


def test_a_barrier_of_other_threads(whole: Case) -> None:
    for index in whole.places(Barrier):
        wrong = whole.changed(index, Barrier(whole.made.group_threads - 32))
        assert "barrier of" in str(whole.problem(wrong))
    # A group's own barrier does not wait for weights that other groups fetch.
    *once, _ = whole.made.once
    once.append(Barrier(whole.made.group_threads))
    assert whole.made.groups > 1
    assert "with no barrier" in str(whole.problem(replace(whole.made, once=tuple(once))))


def test_what_was_not_waited_for(whole: Case) -> None:
    (waits,) = whole.places(Arrived)
    assert "on its way" in str(whole.problem(whole.changed(waits)))
    once = tuple(step for step in whole.made.once if not isinstance(step, Arrived))
    assert whole.problem(replace(whole.made, once=once))
    # Waiting after the barrier is too late for the others.
    item = list(whole.made.item)
    item[waits], item[waits + 1] = item[waits + 1], item[waits]
    assert "with no barrier" in str(whole.problem(replace(whole.made, item=tuple(item))))


@pytest.fixture(scope="module", params=["fp16", "fp32"])
def alone(request: pytest.FixtureRequest) -> Case:
    """A group for itself, whose second layer has many weights."""
    layers = (Convolution(16, 3, padding=1), ReLU(), MaxPool(2), Convolution(32, 5, padding=2),
              MaxPool(2), FullyConnected(5), SoftmaxLayer())  # fmt: skip
    network, generator = Network("net", Pixels((3, 16, 16)), layers), np.random.default_rng(0)
    network = network.with_parameters(random_parameters(network, generator))
    images = generator.integers(0, 256, (3, 3, 16, 16)).astype(np.uint8)
    arithmetic = ARITHMETICS[request.param]
    plan = stack_as(Arrangement(0, 8, 1, 0.1), arithmetic, to_do(network.stages, HOPPER), HOPPER)
    assert plan
    made = program(plan, network.input, "uint8")
    found = run_program(made, plan, network, images)
    truth = reference.chain(network.stages, network.parameters, images, arithmetic.precision)[-1]
    assert compare(found.reshape(truth.value.shape), truth)[1] is None
    return Case(network, plan, made, images, found)


def test_weights_of_later_layers_come_while_the_first_is_computed(alone: Case) -> None:
    kinds = [type(step) for step in alone.made.once]
    assert kinds == [FetchParameters, FetchImage, Committed, FetchParameters, Committed, Clear,
                     Arrived, Barrier]  # fmt: skip
    early, late = (step for step in alone.made.once if isinstance(step, FetchParameters))
    assert late.at * 4 == early.bytes and early.bytes + late.bytes == 4 * alone.made.shared_words
    # They are waited for after the first layer, before the barrier.
    (waits,) = alone.places(Arrived)
    assert isinstance(alone.made.item[waits + 1], Barrier)
    assert "on its way" in str(alone.problem(alone.changed(waits)))
    item = list(alone.made.item)
    item[waits], item[waits + 1] = item[waits + 1], item[waits]
    assert "with no barrier" in str(alone.problem(replace(alone.made, item=tuple(item))))
    # What comes first is waited for at once.
    once = tuple(step for step in alone.made.once if not isinstance(step, Arrived))
    assert "on its way" in str(alone.problem(replace(alone.made, once=once)))


def test_a_fetch_over_what_is_still_read(whole: Case) -> None:
    """The next image before all have taken theirs; zeros where the first image is fetched to."""
    (ahead,) = whole.places(FetchImage)
    item = list(whole.made.item)
    item[ahead - 1], item[ahead] = item[ahead], item[ahead - 1]
    assert "may still read" in str(whole.problem(replace(whole.made, item=tuple(item))))
    fetched, image, clear, *rest = whole.made.once
    assert isinstance(clear, Clear)
    wrong = replace(clear, words=whole.made.group_words)
    found = whole.problem(replace(whole.made, once=(fetched, image, wrong, *rest)))
    assert "while a fetch is on its way" in str(found)
    found = whole.problem(replace(whole.made, once=(wrong, fetched, image, *rest)))
    assert "is fetched where another thread wrote" in str(found)


def other_fields(step: Any) -> Iterator[Any]:
    """A step with one number wrong, of those that it uses."""
    unused = {"pitch"} if getattr(step, "runs", 0) == 1 else set()
    for name in ("at", "weights", "bias", "tables", "staged", "row", "pitch", "copy", "bytes"):
        if getattr(step, name, None) and name not in unused:
            for more in (-16, 2, 16):
                yield replace(step, **{name: getattr(step, name) + more})
    for name in ("units", "taps_y", "height", "width", "size", "out_y", "left"):
        if getattr(step, name, 0) > 1:
            yield replace(step, **{name: getattr(step, name) - 1})
    target = getattr(step, "target", None)
    if isinstance(target, Target):
        one_row = isinstance(step, Convolve) and step.rows == (2 if step.pool else 1)
        for name in ("at", "filters") if one_row else ("at", "filters", "out_row"):
            if getattr(target, name):
                yield replace(step, target=replace(target, **{name: getattr(target, name) - 2}))
    elif target is not None:
        yield replace(step, target=target + 2)


def test_every_wrong_offset_is_seen(whole: Case) -> None:
    tried = 0
    for index, step in enumerate(whole.made.item):
        if not isinstance(step, Fill | FetchImage | Convolve | Each | Softmax):
            continue
        for wrong in other_fields(step):
            tried += 1
            assert whole.problem(whole.changed(index, wrong)), wrong
    index, together = whole.last
    scores, barrier, softmax = together.steps
    for wrong in other_fields(scores):
        tried += 1
        steps = (wrong, barrier, softmax)
        assert whole.problem(whole.changed(index, replace(together, steps=steps))), wrong
    for wrong in (replace(softmax, at=softmax.at + 2), replace(softmax, apart=softmax.apart + 2)):
        steps = (scores, barrier, wrong)
        assert whole.problem(whole.changed(index, replace(together, steps=steps))), wrong
    assert tried > 60


def test_zeros_that_are_missing(whole: Case) -> None:
    """The second image finds the first one's values; the first finds what was there before."""
    needed = [index for index in whole.places(Border) if whole.made.item[index].needed]
    assert needed
    for index in needed:
        assert whole.problem(whole.changed(index)), index
    once = tuple(step for step in whole.made.once if not isinstance(step, Clear))
    assert whole.problem(replace(whole.made, once=once))


@pytest.mark.parametrize(
    "filters, columns, only_sums",
    # Of 40 filters a column is left over, of 20 a column has 4.
    [(32, 4, True), (16, 2, True), (48, 2, False), (40, 2, True), (20, 2, False)],
)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_wide_writes(precision: str, filters: int, columns: Wide, only_sums: bool) -> None:
    """Operands and floats go to device memory, eight halves at a time in fp16, or four: lanes
    exchange words first.

    A width that the place does not have is seen, and written one by one they are the same.
    """
    layers = (Convolution(filters, 1), ReLU())
    network, generator = Network("net", Pixels((16, 8, 8)), layers), np.random.default_rng(0)
    network = network.with_parameters(random_parameters(network, generator))
    arithmetic, (only,) = ARITHMETICS[precision], to_do(network.stages, HOPPER)
    plan, _ = arranged(arithmetic, [replace(only, gives="words", only_sums=only_sums)], HOPPER)
    images = generator.integers(0, 256, (2, 16, 8, 8), np.uint8)
    made = program(plan, network.input, "uint8")
    found = run_program(made, plan, network, images)
    wide = Case(network, plan, made, images, found)
    truth = reference.chain(network.stages, network.parameters, images)[-1].value
    kind = np.float16 if precision == "fp16" else np.float32
    given = found.view(kind).reshape(-1, 8, 8, filters).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(given, truth, rtol=2e-2, atol=2e-2)

    (index,) = wide.places(Convolve)
    step = made.item[index]
    assert isinstance(step, Convolve)
    assert (step.target.wide, step.target.paired) == (columns if precision == "fp16" else 0, True)

    def with_target(**changes: Any) -> Program:
        return wide.changed(index, replace(step, target=replace(step.target, **changes)))

    assert wide.problem(with_target(wide=0, paired=False)) is None
    at_once, shift = (columns, -columns // 2) if precision == "fp16" else (2, -1)
    off = with_target(out_row=step.target.out_row + shift)
    assert f"{at_once} words at once from word" in str(wide.problem(off))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_strips(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows outside the picture that are not emptied, or whose zeros are not waited for."""
    kept = 1024 * (4 if precision == "fp16" else 10)
    monkeypatch.setitem(GENERATIONS, 90, replace(HOPPER, shared_bytes=kept, worth_it=3))
    monkeypatch.setattr(arrange, "MOST_TWICE", 3)
    layers = (Convolution(8, 3, padding=1), ReLU(), Convolution(5, 3, padding=1))
    tall = case(precision, (2, 61, 9), layers)
    assert tall.made.strip
    (index,) = tall.places(Outside)
    step = tall.made.item[index]
    assert isinstance(step, Outside)
    blank, barrier = step.steps
    assert isinstance(blank, Blank)
    assert tall.problem(tall.changed(index))
    assert "thread" in str(tall.problem(tall.changed(index, replace(step, steps=(blank,)))))
    later = replace(step.rows, padding=step.rows.padding - 1)
    assert tall.problem(tall.changed(index, replace(step, rows=later)))
    assert tall.problem(tall.changed(index, replace(step, height=1)))
    other = replace(blank, rows=later)
    assert tall.problem(tall.changed(index, replace(step, steps=(other, barrier))))


def test_memory_outside_and_in_flight() -> None:
    memory = Memory("memory", 8)
    with pytest.raises(Mistake, match=r"^memory: 7 to 8 is not inside its 8$"):
        memory.read(np.array([7, 8]), 0)
    memory.begin("item[2] Fetch")
    memory.fetch(np.array([4]), np.arange(4, dtype=np.uint32), np.array([0]))
    with pytest.raises(Mistake, match=r"^memory: word 4 is used while a fetch is on its way"):
        memory.read(np.array([3, 4]), 0)
    memory.arrive()
    memory.begin("item[3] Fill")
    words = r"no barrier between: item\[3\] Fill, after item\[2\] Fetch$"
    with pytest.raises(Mistake, match=words):
        memory.read(np.array([5]), 1)
    memory.meet(2)
    assert memory.read(np.array([5]), 1) == [1]
