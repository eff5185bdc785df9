"""The cache of compiled networks: found again, repaired, shared, done without."""

from __future__ import annotations

import subprocess
import sys

import pytest

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


def test_another_cpu_is_another_object(tmp_path):
    build.compile_network(SMALL, build.host(), tmp_path)
    assert not build.compile_network(SMALL, build.restricted("sse"), tmp_path).from_cache


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
        "build.compile_network(zoo.network('ece408-2017'), build.host(), pathlib.Path(sys.argv[1]))"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, tmp_path]) for _ in range(2)]
    assert [process.wait() for process in running] == [0, 0]
    assert build.compile_network(zoo.network("ece408-2017"), build.host(), tmp_path).from_cache
    assert [path.suffix for path in tmp_path.iterdir()] == [".kept"]


def test_weights_do_not_matter_to_the_object(tmp_path):
    import tilewright

    build.compile_network(tilewright.load("cifar10"), build.host(), tmp_path)
    assert build.compile_network(zoo.network("cifar10"), build.host(), tmp_path).from_cache


def test_assembly_shows_fused_multiply_adds():
    if "+fma" not in build.host().features:
        pytest.skip("this CPU has no FMA")
    network = zoo.network("cifar10")
    text = build.assembly(network, build.host(), by_images(network, build.host().target))
    body = text.partition("conv2_relu2_pool2:")[2].partition(".Lfunc_end")[0]
    assert body.count("vfmadd") > 500
    on = build.restricted("sse")
    assert "vfmadd" not in build.assembly(SMALL, on, by_images(SMALL, on.target))
