"""Truths are computed once, and outputs that were found right are known again to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.model.layers import Pixels, ReLU
from tilewright.model.network import Network
from tilewright.rungs.cpu import im2col
from tilewright.truth import reference
from tilewright.truth.trials import Trial
from tilewright.truth.truths import REMEMBERED, Known, Truths

IMAGES = np.arange(-6, 6, dtype=np.float32).reshape(3, 1, 2, 2)
NETWORK = Network("layer", Pixels((1, 2, 2)), (ReLU(),))


@pytest.fixture
def truths():
    return Truths(Trial("numbers", NETWORK, IMAGES), im2col.RUNG)


def test_what_was_seen_is_not_computed_again(truths, monkeypatch):
    computed = []
    chain = reference.chain

    def counted(stages, parameters, x, precision):
        computed.append([len(each) for each in x.values()])
        return chain(stages, parameters, x, precision)

    monkeypatch.setattr(reference, "chain", counted)
    truths.of(1, [(0,), (1,), (0,)], [IMAGES[[0, 1, 0]]])
    found = truths.of(1, [(2,), (1,)], [IMAGES[[2, 1]]])
    assert computed == [[2], [1]]
    np.testing.assert_array_equal(found[0].truth.value, IMAGES[2])
    np.testing.assert_array_equal(found[1].truth.value, np.maximum(IMAGES[1], 0))


def test_nan_is_told_apart(truths):
    spoiled = IMAGES[:2].copy()
    spoiled[1, 0, 0, 0] = np.nan
    assert [each.finite for each in truths.of(1, [(0,), (1,)], [spoiled])] == [True, False]


def test_only_the_same_bits_are_known_again(truths):
    (known,) = truths.of(1, [(0,)], [IMAGES[:1]])
    right = np.array([[[0.0, 1.0], [np.nan, 2.0]]], np.float32)
    assert known.seen(right) is None
    number = truths.found_right(known, right)
    assert known.seen(right.copy()) == number >= len(IMAGES)
    for place, value in (((0, 0, 0), -0.0), ((0, 0, 1), np.nextafter(np.float32(1), 2))):
        other = right.copy()
        other[place] = value
        assert known.seen(other) is None
    assert known.seen(right[:, :1]) is None
    right[0, 0, 0] = 9  # what is remembered is not the caller's to change
    assert known.seen(right) is None


def test_few_are_remembered_and_each_has_its_own_number(truths):
    known = Known(reference.Truth(np.zeros(1), np.ones(1)), True)
    outputs = np.arange(REMEMBERED + 2, dtype=np.float32)[:, None]
    numbers = [truths.found_right(known, each) for each in outputs]
    assert len(set(numbers)) == len(outputs)
    assert [known.seen(each) for each in outputs] == [*numbers[:REMEMBERED], None, None]
