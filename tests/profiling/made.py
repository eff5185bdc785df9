"""Profiles made by hand and drawn by hypothesis, for tests of everything that reads them."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.examples import CHARACTERS
from tests.results.made import ENVIRONMENT
from tilewright.profiling.result import Ceilings, Layer, Profile
from tilewright.profiling.saved import KINDS
from tilewright.profiling.tally import Row, Tally
from tilewright.profiling.wall import PARTS, Wall
from tilewright.runtime.device import CUDA, GPU_KINDS, Device
from tilewright.trace import Cost, Event

LAYERS = (
    Layer("input", "input", 0, 3072, 12_288, 0),
    Layer("conv1", "conv", 2_000_000, 12_288, 65_536, 4864),
    Layer("relu1", "relu", 0, 65_536, 65_536, 0), Layer("softmax", "softmax", 0, 40, 40, 0),
)  # fmt: skip
CEILINGS = Ceilings("a GPU", 1e12, 1e11, 16, "2026-11-15")
GRID, BLOCK = (64, 1, 2), (16, 16, 1)


def events(rung="direct", factor=1.0):
    """Two images through a network of one convolution, with copies around it."""
    ms = 1e-3 * factor
    yield Event("host", "host_normalise", 0, ms, ("input",))
    for image in range(2):
        t = 10 * ms * (image + 1)
        yield Event("layer", "conv1", t, t + 8 * ms, ("conv1",))
        yield Event("api", "cudaMemcpyAsync", t, t + ms, ("conv1",), correlation=3 * image + 1)
        yield Event(
            "copy", "host to device", t, t + ms, ("conv1",), 3072, lane="stream 7",
            correlation=3 * image + 1,
        )  # fmt: skip
        yield Event(
            "api", "cuLaunchKernel", t + ms, t + 2 * ms, ("conv1",), correlation=3 * image + 2
        )
        yield Event(
            "kernel", f"{rung}_conv", t + 2 * ms, t + 6 * ms, ("conv1",), 0, GRID, BLOCK,
            Cost(2_000_000, 80_000), "stream 7", 3 * image + 2,
        )  # fmt: skip
        yield Event("kernel", "layer_relu", t + 6 * ms, t + 7 * ms, ("relu1",), lane="stream 7")
        yield Event("copy", "device to host", t + 7 * ms, t + 8 * ms, ("conv1",), 65_536)
        yield Event(
            "api", "cudaStreamSynchronize", t + 6 * ms, t + 9 * ms, correlation=3 * image + 3
        )


def profile(rung="direct", factor=1.0, **changes):
    tally = Tally()
    for event in events(rung, factor):
        tally(event)
    parts = dict.fromkeys(PARTS, 0.0) | {"kernels": 0.010 * factor, "host": 0.020 * factor}
    facts = {
        "network": "small", "layers": LAYERS, "data": "by hand", "images": 2, "batch": 1,
        "device": CUDA, "device_name": "a GPU", "rung": rung, "idea": "a thread an output",
        "memory": "per-layer", "source": "a test", "rows": tally.rows({}),
        "wall": Wall(0.030 * factor, parts), "timed": (0.020, 0.021, 0.022),
        "ceilings": CEILINGS, "accuracy": 0.5, "environment": ENVIRONMENT,
    }  # fmt: skip
    return Profile(**(facts | changes))


texts = st.text(CHARACTERS, max_size=12)
devices = st.builds(Device, st.sampled_from(GPU_KINDS), st.none() | st.integers(0, 999))
seconds = st.floats(0, 1e6)
counts = st.integers(0, 2**50)
images = st.integers(0, 2**40)  # times what a layer does, still a number of 64 bits
sizes = st.tuples(*[st.integers(1, 2**31 - 1)] * 3)
names = st.lists(st.sampled_from([layer.name for layer in LAYERS]), unique=True).map(tuple)
rows = st.builds(
    Row, st.sampled_from(KINDS), texts, names, st.integers(1, 2**40), seconds, seconds, seconds,
    counts, counts, counts, counts, st.none() | counts, st.none() | counts,
    st.lists(st.tuples(sizes, sizes), max_size=3).map(tuple), counts, seconds,
)  # fmt: skip
profiles = st.builds(
    Profile, texts, st.just(LAYERS), texts, images, counts, devices, *[texts] * 5,
    st.lists(rows, max_size=5).map(tuple),
    st.builds(Wall, seconds, st.fixed_dictionaries(dict.fromkeys(PARTS, seconds))),
    st.just(ENVIRONMENT), st.lists(seconds, max_size=3).map(tuple),
    st.none() | st.builds(Ceilings, texts, st.none() | seconds, st.none() | seconds, counts, texts),
    st.none() | st.floats(0, 1), counts, st.none() | texts, st.lists(texts, max_size=2).map(tuple),
)  # fmt: skip
