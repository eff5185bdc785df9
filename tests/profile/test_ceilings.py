from __future__ import annotations

import json

import pytest

from tilewright import __version__, peak
from tilewright.profile import ceilings as module
from tilewright.profile.ceilings import ceilings
from tilewright.profile.result import Ceilings


@pytest.fixture
def measured(monkeypatch):
    """How often the device was measured."""
    count = []
    found = Ceilings("a CPU", 1e9, 1e8, 2, "2026-11-15")
    monkeypatch.setattr(module, "measure", lambda device, name, precision: count.append(1) or found)
    return count


def test_they_are_measured_once_and_kept(tmp_path, measured):
    first, problem = ceilings("cpu", "a CPU", folder=tmp_path)
    assert problem is None
    assert ceilings("cpu", "a CPU", folder=tmp_path) == (first, None)
    assert len(measured) == 1
    assert (tmp_path / "a-CPU-fp32.json").is_file()


KEPT = {
    "version": __version__, "device": "a CPU", "flops": 2.0, "bytes": 3.0, "processors": 2,
    "date": "2026-11-15", "precision": "fp32",
}  # fmt: skip
WRONG = [
    {"flops": -5.0}, {"flops": float("nan")}, {"bytes": "abc"}, {"bytes": 0.0}, {"date": 5},
    {"precision": "fp16"}, {"processors": -1}, {"device": "another"}, {"more": 1},
]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        '{"version": 1}',
        "\0",
        *(json.dumps({**KEPT, **each}) for each in WRONG),
    ],
)
def test_a_damaged_file_is_measured_again(tmp_path, measured, text):
    (tmp_path / "a-CPU-fp32.json").write_text(text)
    found, _ = ceilings("cpu", "a CPU", folder=tmp_path)
    assert found.flops == 1e9
    assert ceilings("cpu", "a CPU", folder=tmp_path)[0] == found
    assert len(measured) == 1


def test_another_version_measures_again(tmp_path, measured):
    ceilings("cpu", "a CPU", folder=tmp_path)
    kept = json.loads((tmp_path / "a-CPU-fp32.json").read_text())
    (tmp_path / "a-CPU-fp32.json").write_text(json.dumps({**kept, "version": "0"}))
    ceilings("cpu", "a CPU", folder=tmp_path)
    assert len(measured) == 2


def test_a_cache_that_cannot_be_written_is_said(tmp_path, measured):
    (tmp_path / "file").write_text("")
    found, problem = ceilings("cpu", "a CPU", folder=tmp_path / "file" / "below")
    assert found.flops == 1e9
    assert "not kept" in problem


def test_this_cpu_has_both(monkeypatch):
    monkeypatch.setattr(peak, "MOVED_BYTES", 2**22)
    found = module.measure("cpu", "this")
    assert found.flops > 1e8
    assert found.bytes > 1e8
    assert found.processors >= 1
