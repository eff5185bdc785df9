from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tilewright.fuse.cpu.few import Phase
from tilewright.fuse.cpu.shares import Kernel, Shares, job, piece_of, shares
from tilewright.fuse.cpu.tickets import END

counts, cores = st.integers(0, 400), st.integers(1, 5)


@given(counts, st.sampled_from([4, 8, 16]), cores, st.floats(0, 2))
def test_every_image_goes_one_way(images, lanes, cores, single):
    divided = shares(images, lanes, cores, single)
    assert 0 <= divided.many <= divided.alone <= divided.images == images
    assert (divided.alone - divided.many) % cores == 0
    assert images - divided.alone < cores
    assert images - divided.many < lanes * cores


def test_what_is_left_after_whole_rounds_goes_the_shorter_way():
    """Two cores with vectors of 8; an image by channels takes a sixth of a vector of images."""
    assert shares(1, 8, 2, 1 / 6) == Shares(0, 0, 1)
    assert shares(11, 8, 2, 1 / 6) == Shares(0, 10, 11)
    assert shares(12, 8, 2, 1 / 6) == Shares(12, 12, 12)
    assert shares(100, 8, 2, 1 / 6) == Shares(96, 100, 100)


@given(counts, st.sampled_from([4, 8]), st.sampled_from([1, 4]), cores)
def test_a_job_has_a_ticket_for_every_unit(images, lanes, together, cores):
    divided = shares(images, lanes, cores, 0.2)
    phases = ((Phase(0, 0, 1, 1), 5), (Phase(0, 1, 13, 3), 6))
    piece = piece_of(divided.many, lanes, together, cores)
    assert piece % lanes == 0
    assert piece <= lanes * together
    made = job(divided, Kernel(1, 2), Kernel(3, 4, phases), piece, 10, 20, cores)
    records = made.words.tolist()
    assert records[-1][0] == END
    seen, ticket = [], 0
    for start, needs, function, weights, own, shift, shift_out, first, step, last in records[:-1]:
        assert start == ticket
        ticket += -(-(last - first) // step)
        assert shift * 2 == shift_out
        if own:
            assert needs == 0
            assert (function, weights) in ((1, 2), (3, 4))
            seen += range(first, last)
        else:
            assert needs == start
            seen += [shift // 10] * (function == 6)
    assert sorted(seen) == list(range(images))
    assert made.tickets == ticket
    assert made.helpers < cores
