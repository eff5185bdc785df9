"""The profiler on a CUDA GPU: exact counts by CUPTI, and what happens where there is none."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tests.profiling.made import CEILINGS
from tilewright.job import Request
from tilewright.profiling import session
from tilewright.profiling.session import prepare, record
from tilewright.runtime import cuda, cupti
from tilewright.runtime.device import CUDA
from tilewright.trace import GPU_FAULTS, Trace

REASON = cuda.missing(CUDA)
pytestmark = [pytest.mark.cuda, pytest.mark.skipif(REASON is not None, reason=str(REASON))]
IMAGES = 60
MANY = 10_000
KERNELS = {
    "padded_conv": 3, "padded_pad": 3, "layer_relu": 3, "layer_pool": 3, "layer_fc": 1,
    "layer_fc_sum": 1, "layer_softmax": 1,
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_calibration(monkeypatch):
    monkeypatch.setattr(session, "ceilings", lambda device, name, precision: (CEILINGS, None))


@pytest.fixture(scope="module")
def pixels(tmp_path_factory):
    file = tmp_path_factory.mktemp("pixels") / "images.npz"
    drawn = np.random.default_rng(0).integers(0, 256, (IMAGES, 3, 32, 32), np.uint8)
    np.savez(file, images=drawn)
    return str(file)


def subject(pixels, memory="resident", batch=1, rung="padded"):
    request = Request(
        net="cifar10", data=pixels, device=CUDA, rung=rung, memory=memory, batch=batch
    )
    return prepare(request, 1, lambda *told: None)


def with_cupti():
    try:
        cupti.load()
    except cupti.Refused as refused:
        pytest.skip(str(refused))


def calls(profile, kind):
    return {row.name: row.calls for row in profile.named(kind)}


@pytest.mark.parametrize(
    ("memory", "copies"),
    [("managed", {}), ("per-layer", {"[memcpy HtoD]": 19 * IMAGES, "[memcpy DtoH]": 11 * IMAGES}),
     ("resident", {"[memcpy HtoD]": 1, "[memcpy DtoH]": 1})],
)  # fmt: skip
def test_counts_are_what_the_plan_implies(pixels, memory, copies):
    with_cupti()
    profile = record(subject(pixels, memory)).profile
    assert profile.source == cupti.CLOCK
    own = {"layer_normalise": 1} if memory == "resident" else {}
    expected = {name: IMAGES * count for name, count in {**KERNELS, **own}.items()}
    assert calls(profile, "kernel") == expected
    assert calls(profile, "copy") == copies
    assert calls(profile, "api")["cuLaunchKernel"] == sum(expected.values())
    assert bool(profile.of("unified")) == (memory == "managed")
    assert all(len(row.layers) == 1 for row in profile.of("kernel"))
    faults = [row for row in profile.of("unified") if row.name == GPU_FAULTS]
    assert all(row.layers for row in faults)  # they happen inside kernels
    assert (sum(row.faulted for row in profile.of("kernel")) > 0) == (memory == "managed")
    conv2 = [row for row in profile.of("kernel") if row.layers == ("conv2",)]
    assert {row.name: row.calls for row in conv2} == {"padded_conv": IMAGES, "padded_pad": IMAGES}
    assert sum(profile.wall.parts.values()) == pytest.approx(profile.wall.seconds)
    assert profile.dropped == 0


FIRST = """
import sys
from tests.profiling.made import CEILINGS
from tilewright.job import Request
from tilewright.profiling import session
from tilewright.runtime import cupti
from tilewright.runtime.device import CUDA
session.ceilings = lambda device, name, precision: (CEILINGS, None)
if sys.argv[2] == "before":
    cupti.load()
for _ in range(2):
    request = Request(net="cifar10", data=sys.argv[1], images=3, device=CUDA, rung="padded",
                      memory="managed", batch=1)
    made = session.prepare(request, 1, lambda *told: None)
    profile = session.record(made).profile
    print(len(profile.of("unified")) > 0, profile.notices)
"""


@pytest.mark.parametrize("loaded", ["before", "after"])
def test_the_first_profile_of_a_process_has_pages_that_move(pixels, loaded):
    """Also of a few images, whether CUPTI was loaded before there was a context or not."""
    with_cupti()
    child = subprocess.run(
        [sys.executable, "-c", FIRST, pixels, loaded], capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert child.stdout.splitlines() == ["True ()", "True ()"], child.stderr


def test_kernel_times_agree_with_cuda_events(tmp_path):
    """In one large batch: around kernels of microseconds, events measure the host's launching."""
    with_cupti()
    drawn = np.random.default_rng(1).integers(0, 256, (MANY, 3, 32, 32), np.uint8)
    np.savez(tmp_path / "many.npz", images=drawn)
    made = subject(str(tmp_path / "many.npz"), batch=MANY)
    ours = sum(row.seconds for row in record(made).profile.of("kernel"))
    sums = []
    for _ in range(5):
        trace = Trace()
        made.ready.program(made.ready.dataset.images, trace)
        sums.append(sum(event.seconds for event in trace.of("kernel")))
    assert min(sums) == pytest.approx(ours, rel=0.05)


def test_beside_another_profiler_events_take_over(pixels):
    with_cupti()
    module = cupti.load()
    subscriber = module.subscribe(lambda *given: None, None)
    try:
        profile = record(subject(pixels, "per-layer")).profile
    finally:
        module.unsubscribe(subscriber)
    assert "another profiler has CUPTI" in profile.notices[0]
    assert profile.source.startswith("CUDA events")
    assert calls(profile, "kernel") == {name: IMAGES * count for name, count in KERNELS.items()}
    assert calls(profile, "copy") == {"[memcpy HtoD]": 19 * IMAGES, "[memcpy DtoH]": 11 * IMAGES}
    assert calls(profile, "api")["kernel launch (CuPy)"] == IMAGES * sum(KERNELS.values())


def test_pytorchs_kernels_have_layers_too(pixels):
    with_cupti()
    pytest.importorskip("torch")
    profile = record(subject(pixels, rung="torch", batch=20)).profile
    layers = {layer for row in profile.of("kernel") for layer in row.layers}
    assert {"conv1", "conv2", "conv3", "fc", "softmax"} <= layers


FAULTY = """
import sys
from tilewright.cli import main
from tilewright.runtime.cuda import CudaRuntime
from tilewright.runtime.dialect import Source
right, count = CudaRuntime.enqueue, [0]
text = "TW_ENTRY TW_NAME(TW_GLOBAL float *x) { ((volatile float *)0)[TW_BLOCK_X] = x[0]; }"
def faulty(self, kernel, grid, arguments, layers, cost=None):
    count[0] += self.trace is not None
    if count[0] == 300:
        kernel, arguments = self.compile(Source("faulty", text, (1, 1, 1), ())), arguments[:1]
    right(self, kernel, grid, arguments, layers, cost)
CudaRuntime.enqueue = faulty
sys.exit(main(sys.argv[1:]))
"""


def test_a_kernel_that_faults_leaves_a_partial_profile(pixels):
    """In a process of its own: after a fault, CUDA is of no use there."""
    arguments = ["profile", "--net", "cifar10", "--data", pixels, "--device", "cuda", "--rung"]
    arguments += ["direct", "--batch", "1", "--memory", "per-layer", "--repeats", "1"]
    child = subprocess.run(
        [sys.executable, "-c", FAULTY, *arguments], capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert child.returncode == 2, child.stderr
    assert "PARTIAL" in child.stdout
    words = child.stderr.splitlines()[0]  # CuPy may complain after it that nothing works any more
    assert words.startswith("tilewright: rung direct on cuda: ")
    assert words.endswith(" of 60 images")
    assert "Traceback" not in words
