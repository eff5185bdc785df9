"""Compiled networks on arrays of the host's memory: the CPU, and OpenCL through PoCL."""

from __future__ import annotations

import pickle

import pytest

import tilewright
from tests import quick_builds
from tests.serving import called
from tests.serving.called import SMALL, OnGpu, pixels, refused
from tilewright.runtime import opencl
from tilewright.runtime.device import OPENCL
from tilewright.serving import opencl as module

DEVICES = ("cpu", "opencl")


@pytest.fixture(scope="module", autouse=True)
def not_optimised():
    """As the fixture of all tests, but for networks that a module's tests share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quick_builds, "asked_for", quick_builds.NOT_OPTIMISED)
        yield


@pytest.fixture(scope="module", params=DEVICES)
def compiled(request):
    if request.param == "opencl" and (reason := opencl.missing(OPENCL)):
        pytest.skip(reason)
    return tilewright.compile(SMALL, request.param)


def test_values(compiled):
    called.check_values(compiled, (1, 2, 7, 40))


def test_larger_and_smaller_batches_in_turns(compiled):
    called.check_values(compiled, (30, 1, 50, 2))


def test_the_caller_s_kind_comes_back(compiled):
    called.check_kinds(compiled)


def test_out(compiled):
    called.check_out(compiled)


def test_refusals(compiled):
    called.check_refusals(compiled)
    refused(compiled, "compile it with device='cuda'", OnGpu(pixels(1)))
    refused(compiled, "streams are CUDA's", pixels(1), stream=0)


def test_many_threads(compiled):
    called.check_threads(compiled)


def test_large_batches_go_through_opencl_in_pieces(monkeypatch):
    if reason := opencl.missing(OPENCL):
        pytest.skip(reason)
    monkeypatch.setattr(module, "PIECE", 4)
    called.check_values(tilewright.compile(SMALL, "opencl"), (3, 4, 11))


def test_it_says_what_it_is():
    assert repr(tilewright.compile(SMALL, batch=1000)) == (
        "<'small' on cpu: rung fused, fp32, batches of up to 1,000>"
    )


def test_it_stays_in_its_process():
    with pytest.raises(TypeError, match="send the network"):
        pickle.dumps(tilewright.compile(SMALL))


def test_the_largest_batch():
    compiled = tilewright.compile(SMALL, batch=3)
    assert compiled(pixels(3)).shape == (3, 5)
    refused(compiled, "4 images at once, .* batches of up to 3", pixels(4))
    refused(tilewright.compile, "batch=0: a batch has at least 1 image", SMALL, batch=0)


def test_what_cannot_be_compiled():
    refused(tilewright.compile, "unknown device 'gpu'", SMALL, "gpu")
    refused(tilewright.compile, "cannot run with --precision fp16", SMALL, precision="fp16")
    bare = tilewright.Network("bare", SMALL.input, SMALL.layers)
    refused(tilewright.compile, "has no weights", bare)
    if opencl.missing(OPENCL) is None:
        refused(tilewright.compile, "has no weights", bare, "opencl")
