"""Copies through pinned pieces, on a device whose copies are done when they are waited for."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.runtime import staging
from tilewright.runtime.staging import Staging, copy


class Device:
    """Memory of bytes; a copy is done as late as can be."""

    def __init__(self, size):
        self.memory = np.zeros(size, np.uint8)
        self.pending = []
        self.most = 0

    def begin_in(self, first, piece):
        return self._begin(lambda: self._put(self.memory[first : first + len(piece)], piece))

    def begin_out(self, first, piece):
        return self._begin(lambda: self._put(piece, self.memory[first : first + len(piece)]))

    def wait(self, mark):
        while mark in self.pending:  # in order, as on a stream
            self.pending.pop(0)()

    @staticmethod
    def _put(target, source):
        target[:] = source

    def _begin(self, work):
        self.pending.append(work)
        self.most = max(self.most, len(self.pending))
        return work


@pytest.fixture
def pieces():
    return Staging([np.zeros(64, np.uint8) for _ in range(3)])


SHAPES = [(1,), (16,), (17,), (5, 7), (48,), (49, 3), (1000,)]


@pytest.mark.parametrize("shape", SHAPES)
def test_all_of_it_arrives(pieces, shape):
    array = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    device = Device(array.nbytes)
    pieces.send(array, device.begin_in, device.wait)
    assert not device.pending
    np.testing.assert_array_equal(device.memory.view(np.float32), array.ravel())
    back = np.empty_like(array)
    pieces.fetch(back, device.begin_out, device.wait)
    np.testing.assert_array_equal(back, array)
    assert device.most <= 3


def test_pieces_are_on_their_way_while_others_are_filled(pieces):
    device = Device(640)
    pieces.send(np.ones(640, np.uint8), device.begin_in, device.wait)
    assert device.most == 3


def test_what_does_not_lie_in_a_row_arrives_in_order(pieces):
    array = np.arange(200, dtype=np.int16).reshape(10, 20)[:, ::2]
    device = Device(array.nbytes)
    pieces.send(array, device.begin_in, device.wait)
    np.testing.assert_array_equal(device.memory.view(np.int16), array.ravel())


@pytest.mark.parametrize("least", [1, 10**6])
def test_copies_by_one_core_or_several(monkeypatch, least):
    monkeypatch.setattr(staging, "LEAST_BYTES", least)
    source = np.random.default_rng(0).integers(0, 256, (13, 5, 7), np.uint8)
    target = np.zeros_like(source)
    copy(target, source)
    np.testing.assert_array_equal(target, source)
    copy(target[:4], source[9:])
    np.testing.assert_array_equal(target[:4], source[9:])
