from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tilewright.cli import main
from tilewright.environment import cpu_model
from tilewright.errors import TilewrightError
from tilewright.runtime import cuda, opencl
from tilewright.runtime.device import Device
from tilewright.runtime.dialect import Limits
from tilewright.runtime.multiprocessor import REFERENCE
from tilewright.runtime.opencl_runtime import OpenClRuntime


def shown(capsys):
    assert main(["devices"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 100
    return " ".join(text.split())


def listed(capsys):
    assert main(["devices", "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "tilewright.devices/1"
    assert document["environment"]["cores"] >= 1
    return {device["name"]: device for device in document["devices"]}


@pytest.fixture
def without_cuda(monkeypatch):
    monkeypatch.setattr(cuda, "find_spec", lambda name: None)


@pytest.mark.skipif(bool(opencl.unusable()), reason="no pyopencl")
def test_what_is_here(capsys, without_cuda):
    text = shown(capsys)
    assert f"cpu {cpu_model()}" in text
    assert "vectors: " in text
    assert "cuda CuPy not installed: pip install 'tilewright[cuda]'" in text
    # A table wraps what is long; the names themselves are in the JSON.
    models = [device["model"] for device in listed(capsys).values()]
    for device in opencl.devices():
        assert device.name.split()[0] in text
        assert device.name.strip() in models


@pytest.mark.skipif(bool(opencl.unusable()), reason="no pyopencl")
def test_simulators_are_last_and_marked(capsys, without_cuda):
    here = listed(capsys)
    order = list(here)
    assert (order[0], order[-1]) == ("cpu", "cuda")
    marks = [device["simulator"] for name, device in here.items() if name.startswith("opencl")]
    assert marks == sorted(marks)
    names = [f"opencl:{index}" if index else "opencl" for index in range(len(marks))]
    assert [name for name in order if name.startswith("opencl")] == names
    if any(marks):
        assert "simulator: checks kernels" in shown(capsys)
    for name in names:
        assert here[name]["limits"]["threads"] <= 1024


@pytest.mark.skipif(bool(opencl.unusable()), reason="no pyopencl")
def test_what_is_said_of_managed_memory_is_so(capsys, without_cuda):
    for name, device in listed(capsys).items():
        if not name.startswith("opencl") or not device["usable"]:
            continue
        if device["managed"]:
            assert OpenClRuntime(Device.parse(name), managed=True).managed
        else:
            with pytest.raises(TilewrightError, match="shares no memory with the host"):
                OpenClRuntime(Device.parse(name), managed=True)


def test_nothing_but_a_cpu(capsys, without_cuda, monkeypatch):
    monkeypatch.setattr(opencl, "find_spec", lambda name: None)
    text = shown(capsys)
    assert "opencl pyopencl not installed: pip install 'tilewright[opencl]'" in text
    assert [name for name, device in listed(capsys).items() if device["usable"]] == ["cpu"]


@pytest.mark.skipif(bool(opencl.unusable()), reason="no pyopencl")
@pytest.mark.parametrize(
    ("installed", "words"),
    [
        (False, "one that runs on the CPU comes with pip install 'tilewright[opencl]'"),
        (True, "PoCL is installed and would run on the CPU, but does not start here"),
    ],
)
def test_no_opencl_device_at_all(installed, words, capsys, without_cuda, monkeypatch):
    monkeypatch.setattr(opencl, "devices", list)
    monkeypatch.setattr(opencl, "is_installed", lambda: installed)
    assert f"opencl no OpenCL device found; {words}" in shown(capsys)


@pytest.mark.skipif(bool(opencl.unusable()), reason="no pyopencl")
def test_a_device_that_cannot_build_kernels(capsys, without_cuda, monkeypatch):
    monkeypatch.setattr(opencl, "check_pocl", lambda: "PoCL needs the linker")
    for name, device in listed(capsys).items():
        if "Portable" in device["details"]:
            assert (name, device["problem"]) == ("opencl", "PoCL needs the linker")
            assert f"opencl {device['model']}: PoCL needs the linker" in shown(capsys)
            return
    pytest.skip("no PoCL here")


@pytest.mark.skipif(bool(opencl.unusable()), reason="no pyopencl")
def test_nothing_but_a_simulator(capsys, without_cuda, monkeypatch):
    simulators = [device for device in opencl.devices() if opencl.is_simulator(device)]
    if not simulators:
        pytest.skip("no simulator here")
    monkeypatch.setattr(opencl, "devices", lambda: simulators)
    here = listed(capsys)
    assert not here["opencl"]["usable"]
    assert (
        "but the simulator Oclgrind Simulator, which must be named (opencl:0)"
        in here["opencl"]["problem"]
    )
    assert here["opencl:0"]["usable"]
    assert main(["run", "--device", "opencl", "--images", "1"]) == 2
    assert "must be named" in capsys.readouterr().err


def test_every_cuda_gpu(capsys, monkeypatch):
    monkeypatch.setattr(cuda, "missing", lambda device: "no" if device.index > 1 else None)
    monkeypatch.setattr(cuda, "limits", lambda index: Limits(1024, 49152, 65536, 141 * 10**9, 132))
    monkeypatch.setattr(cuda, "gpu", lambda index: replace(REFERENCE, name=f"NVIDIA H20{index}"))
    monkeypatch.setattr(cuda, "versions", lambda: "driver for CUDA 13.0, library 12.9")
    text = shown(capsys)
    assert "cuda:0 NVIDIA H200 132 141 GB 1,024 49,152 65,536" in text
    assert "cuda:1 NVIDIA H201" in text
    assert "compute capability 9.0, driver for CUDA 13.0, library 12.9" in text
    assert "Not usable" not in text or "cuda" not in text.partition("Not usable")[2]


def test_json_goes_to_a_file_beside_the_table(tmp_path, capsys):
    out = tmp_path / "devices.json"
    assert main(["devices", "--json", str(out)]) == 0
    assert json.loads(out.read_text())["devices"][0]["name"] == "cpu"
    assert "Devices here" in capsys.readouterr().out


def test_a_file_that_cannot_be_written(capsys):
    assert main(["devices", "--json", "/no/such/place.json"]) == 2
    assert "cannot write /no/such/place.json" in capsys.readouterr().err
