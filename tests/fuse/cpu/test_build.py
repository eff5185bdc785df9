"""The cache of compiled networks: found again, repaired, shared, done without."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from tests.fuse.cpu.machines import MACHINES
from tilewright.errors import TilewrightError
from tilewright.fuse.cpu import build
from tilewright.fuse.cpu.schedule import by_channels, by_images
from tilewright.fuse.cpu.tiles import Target
from tilewright.model import zoo
from tilewright.model.layers import FullyConnected, Pixels
from tilewright.model.network import Network

AVX2 = Target(lanes=8, registers=16)
SMALL = Network("small", Pixels((1, 2, 2)), (FullyConnected(3),))


def test_compiled_once_then_found(tmp_path):
    assert not build.compile_network(SMALL, build.host(), tmp_path).from_cache
    assert build.compile_network(SMALL, build.host(), tmp_path).from_cache
    other = Network("small", Pixels((1, 2, 2)), (FullyConnected(4),))
    assert not build.compile_network(other, build.host(), tmp_path).from_cache
    assert len(list(tmp_path.iterdir())) == 2


def test_both_schedules_are_kept(tmp_path):
    for _ in range(2):
        found = [
            build.compile_network(SMALL, build.host(), tmp_path, plan).from_cache
            for plan in (by_images(SMALL, AVX2), by_channels(SMALL, AVX2))
        ]
    assert found == [True, True]
    assert len(list(tmp_path.iterdir())) == 2


def test_code_in_use_is_loaded_once():
    held = build.compile_network(SMALL, build.host(), None)
    again = build.compile_network(SMALL, build.host(), None)
    assert again.engine is held.engine
    del held, again
    assert not build.compile_network(SMALL, build.host(), None).from_cache


def test_another_cpu_is_another_object(tmp_path):
    build.compile_network(SMALL, build.host(), tmp_path)
    other = replace(build.host(), cpu="generic")
    assert not build.compile_network(SMALL, other, tmp_path).from_cache


@pytest.mark.parametrize(
    "damage", [lambda c: c[:-1], lambda c: b"", lambda c: c[:40] + b"x" + c[41:]]
)
def test_a_damaged_file_is_noticed_and_repaired(tmp_path, damage):
    build.compile_network(SMALL, build.host(), tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert not build.compile_network(SMALL, build.host(), tmp_path).from_cache
    assert build.compile_network(SMALL, build.host(), tmp_path).from_cache


def test_without_a_writable_folder_it_still_compiles(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (None, tmp_path / "file" / "compiled"):
        assert not build.compile_network(SMALL, build.host(), folder).from_cache


def test_two_processes_may_start_at_once(tmp_path):
    code = (
        "import sys, pathlib; from tilewright.fuse.cpu import build; "
        "from tilewright.model import zoo; "
        "network, folder = zoo.network('ece408-2017'), pathlib.Path(sys.argv[1]); "
        "sys.exit(10 + build.compile_network(network, build.host(), folder).from_cache)"
    )

    def start():
        return subprocess.Popen([sys.executable, "-c", code, tmp_path])

    assert {process.wait() for process in [start(), start()]} <= {10, 11}
    assert start().wait() == 11  # it is found
    assert [path.suffix for path in tmp_path.iterdir()] == [".kept"]


def test_weights_do_not_matter_to_the_object(tmp_path):
    import tilewright

    build.compile_network(tilewright.load("cifar10"), build.host(), tmp_path)
    assert build.compile_network(zoo.network("cifar10"), build.host(), tmp_path).from_cache


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
