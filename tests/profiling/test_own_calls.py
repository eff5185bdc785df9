from __future__ import annotations

from tilewright.profiling.own_calls import WithoutOwnCalls
from tilewright.trace import Event


def test_calls_made_while_records_were_read_are_not_the_runs():
    found = []
    sink = WithoutOwnCalls(found.append)
    for event in (
        Event("api", "cuLaunchKernel", 1.0, 1.1), Event("profiler", "reading records", 2.0, 3.0),
        Event("api", "cudaStreamSynchronize", 2.1, 2.2), Event("kernel", "k", 2.3, 2.4),
        Event("api", "cuLaunchKernel", 3.1, 3.2),
    ):  # fmt: skip
        sink(event)
    assert [(event.kind, event.start) for event in found] == [
        ("api", 1.0), ("profiler", 2.0), ("kernel", 2.3), ("api", 3.1),
    ]  # fmt: skip
