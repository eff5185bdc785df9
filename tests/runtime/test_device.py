"""How devices are named, and what stands behind a name."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import TilewrightError
from tilewright.runtime.device import CPU, CUDA, DEVICES, KINDS, OPENCL, Device
from tilewright.runtime.inventory import inventory
from tilewright.runtime.registry import backend


def test_a_name_is_a_kind_and_a_number():
    assert list(map(Device.parse, KINDS)) == list(DEVICES) == [CPU, OPENCL, CUDA]
    assert Device.parse("cuda:1") == Device("cuda", 1)
    assert [Device.parse(name).index for name in ("opencl", "opencl:0", "opencl:12")] == [0, 0, 12]
    assert Device.parse("opencl:0") != OPENCL  # a simulator must be named
    assert [device.is_gpu for device in DEVICES] == [False, True, True]


@given(st.sampled_from(KINDS[1:]), st.none() | st.integers(0, 999))
def test_what_is_shown_can_be_given_again(kind, number):
    device = Device(kind, number)
    assert Device.parse(str(device)) == device


@pytest.mark.parametrize(
    "name", ["gpu", "cpi", "", "CUDA", "cpu:0", "cpu:", "cuda:", "cuda:x", "cuda:-1", "opencl:²",
             "cuda:1000", "cuda:1:2", " cuda", "cuda\n", None, 3],
)  # fmt: skip
def test_anything_else_is_told_what_there_is(name):
    with pytest.raises(TilewrightError) as error:
        Device.parse(name)
    assert f"unknown device {name!r}; name cpu, opencl or cuda, or one of" in str(error.value)


def test_a_long_name_is_not_shown_whole():
    with pytest.raises(TilewrightError) as error:
        Device.parse("cuda:" + "9" * 10_000)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_every_kind_has_a_runtime_that_is_here_or_says_why_not(device):
    reason = backend(device.kind).missing(device)
    if reason is None:
        assert backend(device.kind).open_runtime(device, "resident").name == str(device)
    else:
        assert reason in {found.problem for found in inventory() if found.name == str(device)}


def test_what_is_listed_can_be_named():
    for found in inventory():
        device = Device.parse(found.name)
        assert backend(device.kind).missing(device) == found.problem


def test_a_name_is_understood_without_any_library_of_a_device():
    child = (
        "import sys; from tilewright.cli.options import device; device('cuda:1');"
        "print({'cupy', 'pyopencl', 'torch', 'numba', 'llvmlite'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
