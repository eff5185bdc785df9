from __future__ import annotations

import subprocess

from tilewright import environment
from tilewright.results.document import decode, text
from tilewright.results.record import Environment, Gpu


def test_the_fingerprint_is_complete_and_json():
    mark = environment.fingerprint()
    assert decode(text(mark), Environment) == mark
    assert mark.cpu
    assert mark.cores >= 1
    assert mark.memory_bytes > 1e8
    assert mark.libraries["numpy"]
    assert mark.date.endswith("+00:00")


def test_peak_memory_is_that_of_this_process():
    assert 1e7 < environment.peak_memory_bytes() < 1e12


def test_gpus_are_read_from_the_drivers_tool(monkeypatch):
    environment.gpus.cache_clear()
    monkeypatch.setattr(environment.shutil, "which", lambda tool: "/bin/nvidia-smi")
    answer = subprocess.CompletedProcess([], 0, "NVIDIA H200, 580.1, 143771 MiB\n")
    monkeypatch.setattr(environment.subprocess, "run", lambda *args, **more: answer)
    assert environment.gpus() == (Gpu("NVIDIA H200", "580.1", "143771 MiB"),)
    environment.gpus.cache_clear()
    answer.returncode = 9
    assert environment.gpus() == ()
    environment.gpus.cache_clear()


def test_what_a_process_waited_is_not_its_own(monkeypatch):
    monkeypatch.setattr(environment, "_waited", [0.0])
    before = environment.usage().elapsed_seconds
    environment.waited(1000.0)
    environment.waited(500.0)
    assert environment.usage().elapsed_seconds < before - 1400
