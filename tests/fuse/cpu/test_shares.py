from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tilewright.fuse.cpu import shares as shares_module
from tilewright.fuse.cpu.few import Phase
from tilewright.fuse.cpu.shares import Kernel, Shares, jobs, longest_of, piece_of, room, shares
from tilewright.fuse.cpu.tickets import END, MOST_TICKETS

counts, cores = st.integers(0, 400), st.integers(1, 5)


shared = st.floats(0, 2)


@given(counts, st.sampled_from([4, 8, 16]), cores, shared, shared, shared)
def test_every_image_goes_one_way(images, lanes, cores, single, once, lone):
    divided = shares(images, lanes, cores, single, once, lone)
    assert 0 <= divided.many <= divided.alone <= divided.images == images
    assert (divided.alone - divided.many) % cores == 0
    assert images - divided.alone < cores
    # Less than a round goes one by one, or as many as there is room for.
    left = images - divided.many
    assert left < lanes * cores or left == images <= room(lanes, cores)


def test_what_is_left_after_whole_rounds_goes_the_shorter_way():
    """Two cores with vectors of 8; an image by channels takes a sixth of a vector of images."""
    assert shares(1, 8, 2, 1 / 6) == Shares(0, 0, 1)
    assert shares(11, 8, 2, 1 / 6) == Shares(0, 10, 11)
    assert shares(12, 8, 2, 1 / 6) == Shares(12, 12, 12)
    assert shares(100, 8, 2, 1 / 6) == Shares(96, 100, 100)


def test_few_images_go_one_by_one_where_large_weights_would_be_read_for_them_alone():
    """A vector of 8 on each of two cores takes half as long again if it is the only one."""
    assert shares(16, 8, 2, 1 / 8, 0.1) == Shares(16, 16, 16)
    assert shares(16, 8, 2, 1 / 8, 0.1, 0.5) == Shares(0, 16, 16)
    assert shares(15, 8, 2, 1 / 6, 0.1) == Shares(15, 15, 15)
    assert shares(15, 8, 2, 1 / 6, 0.1, 0.5) == Shares(0, 14, 15)
    # Two rounds share what is read, and 32 images are as many as may wait for each other.
    assert shares(32, 8, 2, 1 / 8, 0.1, 0.5) == Shares(0, 32, 32)
    assert shares(32, 8, 2, 1 / 6, 0.1, 0.5) == Shares(32, 32, 32)
    assert shares(33, 8, 2, 1 / 8, 0.1, 0.5) == Shares(32, 32, 33)


PHASES = ((Phase(0, 0, 1, 1), 5), (Phase(0, 1, 13, 3), 6))
UNITS = {function: phase.units for phase, function in PHASES}


def ranges(made, most):
    """What a call's jobs do: ranges of images by both schedules, and the images of phases."""
    seen = []
    for job in made:
        records = job.words.tolist()
        assert job.address == job.words.ctypes.data
        assert records[-1][0] == END
        ticket = 0
        for start, needs, function, weights, own, shift, shift_out, *units in records[:-1]:
            first, step, last = units
            assert first < last
            assert start == ticket
            ticket += -(-(last - first) // step)
            assert shift * 2 == shift_out
            assert needs == (0 if own else start)
            before = shift // 10
            if own:
                assert (function, weights) in ((1, 2), (3, 4))
                seen.append((before + first, before + last))
            else:
                image, unit = divmod(first, UNITS[function])
                seen.append((before + image, function, unit, unit + last - first))
        assert 0 < job.tickets == ticket <= most
    return seen


@given(counts, st.sampled_from([4, 8]), st.sampled_from([1, 4]), cores, st.integers(1, 40))
def test_jobs_have_a_ticket_for_every_unit(images, lanes, together, cores, most):
    divided = shares(images, lanes, cores, 0.2)
    piece = piece_of(divided.many, lanes, together, cores)
    assert piece % lanes == 0
    assert piece <= lanes * together
    longest = longest_of(piece, lanes, cores, 1e8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shares_module, "MOST_TICKETS", most)
        made = jobs(divided, Kernel(1, 2), Kernel(3, 4, PHASES), piece, longest, 10, 20, cores)
    seen, parts = [], {}
    for found in ranges(made, most):
        if len(found) == 2:
            assert found[1] - found[0] <= longest
            seen += range(*found)
        else:
            image, function, first, last = found
            parts.setdefault(image, []).extend((function, unit) for unit in range(first, last))
    assert all(units == [(5, 0), *((6, u) for u in range(13))] for units in parts.values())
    assert sorted([*seen, *parts]) == list(range(images))
    assert all(job.helpers < cores for job in made)


@given(
    st.integers(0, 10**10), st.sampled_from([4, 8, 16]), st.sampled_from([1, 4]),
    st.sampled_from([1, 2, 96]), st.floats(0, 2), st.floats(1, 1e6),
)  # fmt: skip
@example(4_194_298, 4, 1, 2, 0.2, 1.0)
@example(16_777_186, 16, 1, 2, 0.2, 1.0)
def test_more_images_than_tickets_can_be_numbered(images, lanes, together, cores, single, cycles):
    """Every image once, in order, in jobs whose tickets have numbers."""
    divided = shares(images, lanes, cores, single)
    piece = piece_of(divided.many, lanes, together, cores)
    # As many jobs as for batches that fit into memory.
    longest = max(longest_of(piece, lanes, cores, cycles), divided.many // 1000)
    longest -= longest % piece
    made = jobs(divided, Kernel(1, 2), Kernel(3, 4, PHASES[:1]), piece, longest, 10, 20, cores)
    end = 0
    for first, *_, last in ranges(made, MOST_TICKETS):
        assert first == end
        end = last if first < divided.alone else first + 1
    assert end == images


def test_a_job_of_a_large_batch_ends_soon():
    """Ctrl-C is answered between two jobs."""
    seconds_at_1_ghz = longest_of(64, 16, 2, 1e6) / (16 * 2) * 1e6 / 1e9
    assert 0.1 < seconds_at_1_ghz < 1
    assert longest_of(64, 16, 2, 1e12) == 128  # no less than a ticket for every core
