"""Mistakes planted in the steps of a kernel for fully connected layers: all are caught."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from tests.fuse.cuda.dense_interpreter import run_dense
from tests.fuse.cuda.memory import Mistake
from tilewright.fuse.cuda.arithmetic import ARITHMETICS, Words
from tilewright.fuse.cuda.cut import cut
from tilewright.fuse.cuda.dense import Dense
from tilewright.fuse.cuda.emit_dense import dense_program_text, dense_text
from tilewright.fuse.cuda.steps import Barrier, Clear
from tilewright.fuse.cuda.steps_dense import (
    Connect,
    DenseProgram,
    DenseStep,
    Empty,
    Finish,
    Gather,
    Products,
    SoftmaxRows,
    dense_program,
)
from tilewright.model.layers import FullyConnected, Pixels, ReLU, Softmax
from tilewright.model.network import Network
from tilewright.truth import reference
from tilewright.truth.attempt import compare
from tilewright.truth.trials import random_parameters

IMAGES = 18  # more than a tile of 16, and no whole number of them
FEATURES = 400  # more chunks than the ring has places


class Case(NamedTuple):
    plan: Dense
    made: DenseProgram
    parameters: Words
    features: Words
    found: np.ndarray

    def problem(self, made: DenseProgram, rows: slice = slice(None)) -> str | None:
        """What is wrong with other steps, as far as some images see it."""
        try:
            found = run_dense(made, self.parameters, self.features)
        except Mistake as mistake:
            return str(mistake)
        return None if np.array_equal(found[rows], self.found[rows]) else "other results"

    def changed(self, index: int, *steps: DenseStep) -> DenseProgram:
        kept = self.made.steps
        return replace(self.made, steps=(*kept[:index], *steps, *kept[index + 1 :]))

    def places(self, kind: type) -> list[int]:
        return [index for index, step in enumerate(self.made.steps) if isinstance(step, kind)]

    def spoilt(self) -> Case:
        """The same with an image that is all NaN: no other may see it."""
        features = self.features.copy()
        features[1] = 0x7FC07E00
        return self._replace(features=features)


@pytest.fixture(scope="module", params=list(ARITHMETICS))
def case(request: pytest.FixtureRequest) -> Case:
    """Five layers: from the fourth on, rows lie where others were."""
    arithmetic, generator = ARITHMETICS[request.param], np.random.default_rng(0)
    layers = (
        FullyConnected(130), ReLU(), FullyConnected(70), FullyConnected(33), FullyConnected(5),
        FullyConnected(3), Softmax(),
    )  # fmt: skip
    network = Network("rows", Pixels((FEATURES, 1, 1)), layers)
    network = network.with_parameters(random_parameters(network, generator))
    plan = cut(network.stages, arithmetic, 80)[-1]
    assert isinstance(plan, Dense)
    images = generator.normal(size=(IMAGES, FEATURES, 1, 1)).astype(np.float32)
    features = np.zeros((IMAGES, plan.words), np.uint32)
    words = arithmetic.operands(images.reshape(IMAGES, FEATURES))
    features[:, : words.shape[1]] = words
    made, parameters = dense_program(plan), plan.parameters(network.parameters)
    found = run_dense(made, parameters, features)
    truth = reference.chain(network.stages, network.parameters, images, arithmetic.precision)[-1]
    assert compare(found.reshape(truth.value.shape), truth)[1] is None
    return Case(plan, made, parameters, features, found)


def test_the_steps_are_what_is_printed(case: Case) -> None:
    assert dense_program_text(case.made, "rows") == dense_text(case.plan, "rows")
    kinds = {type(step) for step in case.made.steps}
    assert kinds == {Products, Gather, Clear, Barrier, Finish, Empty, Connect, SoftmaxRows}


def test_every_barrier_is_missed(case: Case) -> None:
    assert len(case.places(Barrier)) == 6
    for index in case.places(Barrier):
        assert "thread" in str(case.problem(case.changed(index))), index
        assert "barrier of" in str(case.problem(case.changed(index, Barrier(32, block=True))))


def test_blocks_that_share_sums_give_the_same(case: Case) -> None:
    for parts in (2, 3):
        found = run_dense(case.made, case.parameters, case.features, parts)
        np.testing.assert_allclose(found, case.found, atol=1e-3)


def test_a_ring_that_does_not_fit(case: Case) -> None:
    (index,) = case.places(Products)
    step = case.made.steps[index]
    assert isinstance(step, Products)
    more = replace(step, stages=case.made.shared_words // step.row)
    assert "is not inside" in str(case.problem(case.changed(index, more)))
    # Rows too near to each other: chunks are fetched over each other.
    near = replace(step, row=step.row - 8)
    assert case.problem(case.changed(index, near))
    odd = replace(step, row=step.row + 2)
    assert "4 words at once" in str(case.problem(case.changed(index, odd)))
    # With fewer chunks in flight it is slower, and as right.
    assert case.problem(case.changed(index, replace(step, stages=2))) is None


def test_every_wrong_offset_is_seen(case: Case) -> None:
    tried = 0
    for index, step in enumerate(case.made.steps):
        for name in ("at", "weights", "row", "chunk_weights", "size"):
            value = getattr(step, name, None)
            if not value or isinstance(step, Empty) or (name, type(step)) == ("row", Products):
                continue  # tested on their own
            for more in (-4, 4) if value > 4 else (-1, 1):
                wrong = replace(step, **{name: value + more})
                tried += 1
                assert case.problem(case.changed(index, wrong)), wrong
        if isinstance(step, Connect) and step.steps > 1:
            assert case.problem(case.changed(index, replace(step, steps=step.steps - 1)))
        if isinstance(step, Finish | Connect):
            for name in ("bias", "filters", "out_row"):
                value = getattr(step.outputs, name)
                wrong = replace(step, outputs=replace(step.outputs, **{name: value - 2}))
                tried += 1
                assert case.problem(case.changed(index, wrong)), wrong
    assert tried > 30


def test_zeros_that_are_missing(case: Case) -> None:
    """Weights there are zero, but not zero times NaN."""
    spoilt, others = case.spoilt(), slice(2, None)
    assert spoilt.problem(case.made, others) is None
    (index, *_) = case.places(Empty)
    assert spoilt.problem(case.changed(index), others)
