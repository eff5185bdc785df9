from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.profiling.pages import Pages
from tilewright.trace import CPU_FAULT, GPU_FAULTS, PAGES_TO_DEVICE, PAGES_TO_HOST, Event


def unified(name, start, end):
    return Event("unified", name, start, end, lane="unified memory")


def placed(*events):
    """Events of unified memory as they are passed on, and seconds of kernels with faults."""
    found = []
    pages = Pages(found.append)
    for event in sorted(events, key=lambda event: event.start):
        pages(event)
    return [(e.name, e.layers) for e in found if e.kind == "unified"], pages.faulted


KERNEL = Event("kernel", "direct_conv", 1.0, 5.0, ("conv1",))
LAYER = Event("layer", "input", 4.0, 6.0, ("input",))


def test_what_the_device_wants_is_the_kernels_and_what_the_host_wants_its_layers():
    found, faulted = placed(
        KERNEL, LAYER, unified(GPU_FAULTS, 2.0, 3.0), unified(PAGES_TO_DEVICE, 2.5, 2.7),
        unified(CPU_FAULT, 4.5, 4.5), unified(PAGES_TO_HOST, 4.6, 4.7),
    )  # fmt: skip
    assert found == [
        (GPU_FAULTS, ("conv1",)), (PAGES_TO_DEVICE, ("conv1",)), (CPU_FAULT, ("input",)),
        (PAGES_TO_HOST, ("input",)),
    ]  # fmt: skip
    assert faulted == {("direct_conv", ("conv1",)): pytest.approx(1.0)}


def test_what_is_in_no_kernel_and_no_layer_is_nobodys():
    found, faulted = placed(
        unified(GPU_FAULTS, 0.5, 0.6), KERNEL, LAYER, unified(PAGES_TO_DEVICE, 5.5, 5.6),
        unified(CPU_FAULT, 7.0, 7.0),
    )  # fmt: skip
    assert [layers for _, layers in found] == [(), (), ()]
    assert faulted == {}


def test_one_that_comes_too_late_is_nobodys():
    """Its kernel is long gone, and the last one began after it."""
    found = []
    pages = Pages(found.append)
    for event in (KERNEL, Event("kernel", "softmax", 7.0, 7.1), unified(GPU_FAULTS, 2.0, 3.0)):
        pages(event)
    assert found[-1].layers == ()
    assert pages.faulted == {}


def test_a_fault_counts_as_long_as_its_kernel_runs():
    _, faulted = placed(KERNEL, unified(GPU_FAULTS, 4.5, 9.0))
    assert faulted == {("direct_conv", ("conv1",)): pytest.approx(0.5)}


times = st.tuples(st.floats(0, 10), st.floats(0, 3))


@given(st.lists(times, max_size=20))
def test_no_kernel_waits_longer_than_it_runs(spans):
    kernels = [Event("kernel", "k", start, start + 1, ("conv1",)) for start in (1, 2, 4, 8)]
    faults = [unified(GPU_FAULTS, start, start + length) for start, length in spans]
    found, faulted = placed(*kernels, *faults)
    assert len(found) == len(spans)
    assert 0 <= sum(faulted.values()) <= 4 * (1 + 1e-9)
