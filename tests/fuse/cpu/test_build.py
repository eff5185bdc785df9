"""The cache of compiled networks: found again, repaired, shared, done without."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.copies import Copy, ready
from tests.fuse.cpu.machines import MACHINES
from tilewright.errors import TilewrightError
from tilewright.fuse.cpu import build
from tilewright.fuse.cpu.schedule import by_channels, by_images
from tilewright.fuse.cpu.tiles import Target
from tilewright.model import zoo
from tilewright.model.layers import FullyConnected, Pixels
from tilewright.model.network import Network
from tilewright.truth.trials import random_parameters

AVX2 = Target(lanes=8, registers=16)
SMALL = Network("small", Pixels((1, 2, 2)), (FullyConnected(3),))
quickly = pytest.mark.usefixtures("not_optimised")


@quickly
def test_compiled_once_then_found(tmp_path):
    assert not build.compile_network(SMALL, build.host(), tmp_path).from_cache
    assert build.compile_network(SMALL, build.host(), tmp_path).from_cache
    other = Network("small", Pixels((1, 2, 2)), (FullyConnected(4),))
    assert not build.compile_network(other, build.host(), tmp_path).from_cache
    assert len(list(tmp_path.iterdir())) == 2


@quickly
def test_both_schedules_are_kept(tmp_path):
    for _ in range(2):
        found = [
            build.compile_network(SMALL, build.host(), tmp_path, plan).from_cache
            for plan in (by_images(SMALL, AVX2), by_channels(SMALL, AVX2))
        ]
    assert found == [True, True]
    assert len(list(tmp_path.iterdir())) == 2


@quickly
def test_code_in_use_is_loaded_once():
    held = build.compile_network(SMALL, build.host(), None)
    again = build.compile_network(SMALL, build.host(), None)
    assert again.engine is held.engine
    del held, again
    assert not build.compile_network(SMALL, build.host(), None).from_cache


@quickly
def test_another_cpu_is_another_object(tmp_path):
    build.compile_network(SMALL, build.host(), tmp_path)
    other = replace(build.host(), cpu="generic")
    assert not build.compile_network(SMALL, other, tmp_path).from_cache


@quickly
def test_a_damaged_file_is_noticed_and_repaired(tmp_path):
    """In the store's way: tests/test_store.py has more damage."""
    build.compile_network(SMALL, build.host(), tmp_path)
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    path.write_bytes(content[:40] + b"x" + content[41:])
    assert not build.compile_network(SMALL, build.host(), tmp_path).from_cache
    assert build.compile_network(SMALL, build.host(), tmp_path).from_cache


@quickly
def test_without_a_writable_folder_it_still_compiles(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (None, tmp_path / "file" / "compiled"):
        assert not build.compile_network(SMALL, build.host(), folder).from_cache


def test_two_processes_may_start_at_once(tmp_path):
    network = zoo.network("ece408-2017")

    def work(pipe):
        ready(pipe)
        pipe.send(build.compile_network(network, build.host(), tmp_path).from_cache)

    copies = [Copy(work) for _ in range(2)]
    for copy in copies:
        copy.go()
    said = sorted(copy.said() for copy in copies)
    assert said in ([[False], [False]], [[False], [True]])  # one at least built it
    assert build.compile_network(network, build.host(), tmp_path).from_cache
    assert [path.suffix for path in tmp_path.iterdir()] == [".kept"]


@quickly
def test_weights_do_not_matter_to_the_object(tmp_path):
    given = random_parameters(SMALL, np.random.default_rng(0))
    build.compile_network(SMALL.with_parameters(given), build.host(), tmp_path)
    assert build.compile_network(SMALL, build.host(), tmp_path).from_cache


@pytest.mark.parametrize("level", MACHINES)
def test_code_for_every_cpu(level):
    """Objects can be made for any of them, and multiply-adds are fused where the CPU can."""
    on = MACHINES[level]
    for schedule in (by_images, by_channels):
        plan = schedule(SMALL, on.target)
        assert build.object_code(build.module_code(SMALL, on, plan), on)[:4] == b"\x7fELF"
    fused = {"avx512": "vfmadd", "avx2": "vfmadd", "neon": "fmla"}
    text = build.assembly(SMALL, on, by_images(SMALL, on.target))
    assert [name for name in ("vfmadd", "fmla") if name in text] == [
        fused[level] for _ in range(level in fused)
    ]


def test_a_cpu_without_vectors_that_are_known():
    with pytest.raises(TilewrightError, match="knows no vectors of this CPU"):
        build.machine({"altivec": True, "sse2": False})
