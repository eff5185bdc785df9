from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.fake_cupti import ActivityKind, ActivityMemcpyKind, FakeCupti
from tilewright.runtime.cupti_records import About, Records
from tilewright.trace import GPU_FAULTS, HOST_TO_DEVICE


def records_of(layers):
    """A launch and a copy for each of some layers, as CUPTI would record them."""
    fake = FakeCupti(lambda: 0.0)
    records = Records(fake)
    for number, layer in enumerate(layers, start=1):
        records.known[number] = About((layer,))
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


def made(cupti, prefix, **fields):
    """A record of the installed cupti-python, of its newest layout."""
    numbers = [n.removeprefix(prefix) for n in dir(cupti) if n.startswith(prefix)]
    newest = max((n for n in numbers if n == "" or n.isdigit()), key=lambda n: int(n or 0))
    record = getattr(cupti, prefix + newest)()
    for field, value in fields.items():
        setattr(record, field, value)
    return record


def test_records_of_the_installed_cupti(monkeypatch):
    """The stand-in's records have the fields that real ones have, under the same numbers."""
    import cupti.cupti as cupti  # of the extra `test`; it needs no GPU to make records

    monkeypatch.setattr(cupti, "get_callback_name", FakeCupti(None).get_callback_name)
    records = Records(cupti)
    records.known[7] = About(("conv1",))
    kind, start = cupti.ActivityKind, 1_794_730_915_228_888_620
    when = {"start": start, "end": start + 5}
    custom = int(cupti.ExternalCorrelationKind.CUSTOM0)
    launch = {"correlation_id": 3}
    faults = int(cupti.ActivityUnifiedMemoryCounterKind.GPU_PAGE_FAULT)
    to_device = int(cupti.ActivityMemcpyKind.HTOD)
    records.take(
        [
            made(cupti, "ActivityAPI", kind=kind.DRIVER, cbid=307, thread_id=99, **when, **launch),
            made(
                cupti, "ActivityExternalCorrelation", kind=kind.EXTERNAL_CORRELATION,
                external_kind=custom, external_id=7, **launch,
            ),
            made(
                cupti, "ActivityKernel", kind=kind.CONCURRENT_KERNEL, name="direct_conv", grid_x=2,
                grid_y=3, grid_z=4, block_x=5, block_y=6, block_z=7, stream_id=8, **when, **launch,
            ),
            made(
                cupti, "ActivityMemcpy", kind=kind.MEMCPY, copy_kind=to_device, bytes=40,
                stream_id=8, **when,
            ),
            made(cupti, "ActivityMemset", kind=kind.MEMSET, bytes=41, stream_id=8, **when),
            made(
                cupti, "ActivityUnifiedMemoryCounter", kind=kind.UNIFIED_MEMORY_COUNTER,
                counter_kind=faults, value=22, **when,
            ),
        ]
    )  # fmt: skip
    call, kernel, copy, memset, unified = records.events(start)
    assert (call.kind, call.name, call.lane) == ("api", "cuLaunchKernel", "thread 99")
    assert (kernel.name, kernel.layers, kernel.lane) == ("direct_conv", ("conv1",), "stream 8")
    assert (kernel.grid, kernel.block) == ((2, 3, 4), (5, 6, 7))
    assert (kernel.start, kernel.seconds) == (0, pytest.approx(5e-9))
    assert (copy.name, copy.bytes, memset.name, memset.bytes) == (
        HOST_TO_DEVICE, 40, "[memset]", 41,
    )  # fmt: skip
    assert (unified.name, unified.times) == (GPU_FAULTS, 22)
