from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.profiling.tally import SHAPES, Tally, by_name
from tilewright.trace import Cost, Event

drawn = st.builds(
    Event, st.sampled_from(["kernel", "copy", "api"]), st.sampled_from("abc"), st.just(0.0),
    st.floats(0, 100), st.sampled_from([("conv1",), ("conv2",), ()]), st.integers(0, 100),
)  # fmt: skip


def tallied(events):
    tally = Tally()
    for event in events:
        tally(event)
    return tally.rows({})


@given(st.lists(drawn, max_size=40))
def test_rows_are_what_numpy_would_give(events):
    rows = tallied(events)
    assert sum(row.calls for row in rows) == len(events)
    for row in rows:
        key = (row.kind, row.name, row.layers, (row.array, row.place))
        mine = [e for e in events if (e.kind, e.name, e.layers, e.moved or ("", "")) == key]
        lengths = [e.end - e.start for e in mine]
        assert (row.calls, row.minimum, row.maximum) == (len(mine), min(lengths), max(lengths))
        assert row.seconds == pytest.approx(sum(lengths))
        assert row.average == pytest.approx(sum(lengths) / len(mine))
        sizes = [e.bytes for e in mine]
        assert (row.bytes, row.smallest, row.largest) == (sum(sizes), min(sizes), max(sizes))


@given(st.lists(drawn, max_size=40))
def test_by_name_loses_nothing_and_sorts(events):
    rows, together = tallied(events), by_name(tallied(events))
    assert len({(row.kind, row.name) for row in together}) == len(together)
    assert sum(row.calls for row in together) == len(events)
    assert sum(row.bytes for row in together) == sum(row.bytes for row in rows)
    times = [row.seconds for row in together]
    assert times == sorted(times, reverse=True)
    for row in together:
        assert set(row.layers) == {
            layer for r in rows if (r.kind, r.name) == (row.kind, row.name) for layer in r.layers
        }


def test_copies_have_nvprofs_names():
    rows = tallied([Event("copy", name, 0, 1) for name in ("host to device", "device to host")])
    assert [row.name for row in rows] == ["[memcpy HtoD]", "[memcpy DtoH]"]


def test_the_cost_is_known_only_if_it_is_of_every_launch():
    known = Event("kernel", "k", 0, 1, ("conv1",), cost=Cost(10, 4))
    (row,) = tallied([known, known])
    assert (row.flops, row.least_bytes) == (20, 8)
    (row,) = tallied([known, Event("kernel", "k", 0, 1, ("conv1",))])
    assert row.flops is None


def test_shapes_are_kept_up_to_a_number():
    grids = [Event("kernel", "k", 0, 1, grid=(n, 1, 1), block=(1, 1, 1)) for n in (*range(12), 0)]
    (row,) = tallied(grids)
    assert len(row.shapes) == SHAPES
    assert row.more_shapes == 12 - SHAPES
