from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.fake_cupti import ActivityKind, ActivityMemcpyKind, FakeCupti
from tilewright.runtime.cupti_records import Records, reader


def records_of(layers):
    """A launch and a copy for each of some layers, as CUPTI would record them."""
    fake = FakeCupti(lambda: 0.0)
    records = Records(fake)
    for number, layer in enumerate(layers, start=1):
        records.known[number] = ((layer,), None)
        fake.pushed.append(number)
        fake.launch(f"kernel of {layer}")
        fake.copy(ActivityMemcpyKind.DTOH, 10)
        fake.pushed.pop()
    return records, fake.waiting


@given(st.data())
def test_any_order_in_any_buffers_gives_the_same(data):
    layers = ["conv1", "conv2", "conv3", "fc"]
    records, waiting = records_of(layers)
    order = data.draw(st.permutations(waiting))
    cut = data.draw(st.integers(0, len(order)))
    records.take(order[:cut])
    records.take(order[cut:])
    events = list(records.events(0))
    kernels = {event.name: event.layers for event in events if event.kind == "kernel"}
    assert kernels == {f"kernel of {layer}": (layer,) for layer in layers}
    copies = sorted(event.layers[0] for event in events if event.kind == "copy")
    assert copies == sorted(layers)
    assert list(records.events(0)) == []


def test_work_whose_call_comes_later_waits_for_it():
    records, (external, call, kernel, *_) = records_of(["conv1"])
    records.take([kernel])
    assert list(records.events(0, final=False)) == []
    records.take([call, external])
    found = {event.kind: event for event in records.events(0, final=False)}
    assert found["kernel"].layers == ("conv1",)


def test_work_whose_call_never_comes_is_not_lost_and_not_kept():
    records, (_, _, kernel, *_) = records_of(["conv1"])
    records.take([kernel])
    assert list(records.events(0, final=False)) == []
    (event,) = records.events(0, final=False)
    assert event.layers == ()
    records.take([kernel])
    assert len(list(records.events(0))) == 1
    assert records.held == []


def test_nothing_piles_up_over_a_long_run():
    records, waiting = records_of(["conv1"])
    for _ in range(100):
        records.take(waiting)
        assert len(list(records.events(0, final=False))) == 4
    assert len(records.external) + len(records.external_before) <= 4
    assert records.taken == []


@pytest.mark.parametrize(
    ("kind", "cbid", "name"),
    [
        (ActivityKind.RUNTIME, 41, "cudaMemcpyAsync"),
        (ActivityKind.DRIVER, 307, "cuLaunchKernel"),
        (ActivityKind.DRIVER, 276, "cuMemcpyHtoDAsync"),
    ],
)
def test_calls_have_their_names_without_versions(kind, cbid, name):
    fake = FakeCupti(lambda: 0.0)
    records = Records(fake)
    fake.call(kind, cbid)
    records.take(fake.waiting)
    (event,) = records.events(0)
    assert (event.kind, event.name, event.lane) == ("api", name, "thread 99")


def test_copies_that_have_no_name_of_ours_keep_theirs():
    fake = FakeCupti(lambda: 0.0)
    records = Records(fake)
    fake.copy(ActivityMemcpyKind.PTOP, 1)
    records.take(fake.waiting)
    assert [event.name for event in records.events(0) if event.kind == "copy"] == ["[memcpy PTOP]"]


API = np.dtype(
    {
        "names": ["kind", "cbid", "start", "end", "process_id", "thread_id", "correlation_id"],
        "formats": ["<i4", "<u4", "<u8", "<u8", "<u4", "<u4", "<u4"],
        "offsets": [0, 4, 8, 16, 24, 28, 32], "itemsize": 40,
    }
)  # fmt: skip
PAIR = np.dtype(
    {
        "names": ["kind", "external_kind", "external_id", "correlation_id"],
        "formats": ["<i4", "<i4", "<u8", "<u4"], "offsets": [0, 4, 8, 16], "itemsize": 24,
    }
)  # fmt: skip


class InMemory:
    """A record as cupti-python has it: fields lie at `ptr`, and reading an attribute is slow."""

    layout = API

    def __init__(self, **fields):
        self.data = np.zeros(1, self.layout)
        for name, value in fields.items():
            self.data[name] = value
        self.ptr = self.data.ctypes.data


class Pair(InMemory):
    layout = PAIR


def test_records_in_memory_are_read_at_once():
    fake = FakeCupti(lambda: 0.0)
    fake.ActivityAPI, fake.activity_api_dtype = InMemory, API
    fake.ActivityExternalCorrelation, fake.activity_external_correlation_dtype = Pair, PAIR
    records = Records(fake)
    records.known[7] = (("conv1",), None)
    start = 1_794_730_915_228_888_620
    records.take(
        [
            InMemory(kind=4, cbid=307, start=start, end=start + 5, thread_id=99, correlation_id=3),
            Pair(kind=39, external_kind=3, external_id=7, correlation_id=3),
        ]
    )
    (event,) = records.events(start)
    assert (event.name, event.layers, event.lane) == ("cuLaunchKernel", ("conv1",), "thread 99")
    assert (event.start, event.seconds) == (0, pytest.approx(5e-9))


def test_the_installed_cupti_has_such_layouts():
    cupti = pytest.importorskip("cupti.cupti")
    names = ("kind", "cbid", "start", "end", "thread_id", "correlation_id")
    record = np.zeros(1, cupti.activity_api_dtype)
    for number, name in enumerate(names, start=1):
        record[name] = number
    assert reader(cupti.activity_api_dtype, *names)(record.ctypes.data) == (1, 2, 3, 4, 5, 6)
    pair = np.zeros(1, cupti.activity_external_correlation_dtype)
    pair["external_id"] = 9
    read = reader(cupti.activity_external_correlation_dtype, "external_id", "correlation_id")
    assert read(pair.ctypes.data) == (9, 0)
