from __future__ import annotations

import io
import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import CHARACTERS
from tests.profiling.made import events
from tilewright.errors import TilewrightError
from tilewright.profiling.order import Ordered
from tilewright.trace import Event
from tilewright.views import timeline as module
from tilewright.views.timeline import Timeline


def written(given):
    file = io.BytesIO()
    timeline = Timeline(file, Path("t.json"), 'a "GPU"')
    ordered = Ordered(timeline)
    for event in given:
        ordered(event)
    ordered.settle()
    timeline.finish()
    return json.loads(file.getvalue())["traceEvents"]


def test_processes_tracks_slices_and_arrows():
    records = written(events())
    named = {r["pid"]: r["args"]["name"] for r in records if r["name"] == "process_name"}
    assert named == {1: "host", 2: 'a "GPU"'}
    tracks = {(r["pid"], r["args"]["name"]) for r in records if r["name"] == "thread_name"}
    assert {(1, "layers"), (1, "computed by the host"), (2, "stream 7")} <= tracks
    slices = [r for r in records if r["ph"] == "X"]
    assert len(slices) == len(list(events()))
    starts = [r["ts"] for r in slices]
    assert starts == sorted(starts)
    kernel = next(r for r in slices if r["name"] == "direct_conv")
    assert kernel["dur"] == pytest.approx(4000)
    assert kernel["args"] == {
        "layers": "conv1", "grid": [64, 1, 2], "block": [16, 16, 1], "flop": 2_000_000,
        "least bytes": 80_000,
    }  # fmt: skip
    begins = {r["id"]: r for r in records if r["ph"] == "s"}
    ends = {r["id"]: r for r in records if r["ph"] == "f"}
    assert begins.keys() == ends.keys()
    assert len(begins) == 4  # a copy in and a launch, twice
    assert all(ends[i]["ts"] >= begins[i]["ts"] for i in begins)


kinds = st.sampled_from(
    ["phase", "layer", "kernel", "host", "copy", "memset", "unified", "api", "profiler"]
)
texts = st.text(CHARACTERS)
drawn = st.builds(
    Event, kinds, texts, st.floats(0, 1e4), st.floats(0, 1e4), st.lists(texts).map(tuple),
    st.integers(0, 2**60), lane=texts, correlation=st.integers(0, 3), times=st.integers(1, 9),
)  # fmt: skip


@given(st.lists(drawn, max_size=20))
def test_whatever_happens_it_is_json_with_paired_arrows(given):
    records = written(given)
    arrows = [r for r in records if r["ph"] in "sf"]
    assert sorted(r["id"] for r in arrows if r["ph"] == "s") == sorted(
        r["id"] for r in arrows if r["ph"] == "f"
    )
    pages = [r for r in records if r["ph"] in "be"]
    assert len(pages) == 2 * sum(event.kind == "unified" for event in given)
    tracks = {(r["pid"], r["tid"]) for r in records if r["name"] == "thread_name"}
    assert all((r["pid"], r["tid"]) in tracks for r in records if r["ph"] == "X")
    assert all(r["dur"] >= 0 for r in records if r["ph"] == "X")


def test_a_long_timeline_takes_no_memory(monkeypatch):
    monkeypatch.setattr(module, "REMEMBERED", 100)

    class Nowhere(io.RawIOBase):
        size = 0

        def write(self, data):
            self.size += len(data)
            return len(data)

    file = Nowhere()
    timeline = Timeline(file, Path("t.json"), "a GPU")
    tracemalloc.start()
    for index in range(5_000):
        timeline(Event("api", "cuLaunchKernel", index, index + 0.1, correlation=index + 1))
        timeline(Event("kernel", "k", index + 0.2, index + 0.9, correlation=index + 1))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 500_000
    assert file.size > 5_000 * 200
    assert timeline.arrows == 5_000


def test_a_full_disk_is_one_line():
    class Full(io.RawIOBase):
        def write(self, data):
            raise OSError(28, "No space left on device")

    with pytest.raises(TilewrightError, match=r"cannot write t\.json: No space left on device"):
        Timeline(Full(), Path("t.json"), "a GPU")
