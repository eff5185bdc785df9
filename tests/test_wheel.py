"""The source distribution is the project; the wheel made from it, alone, does the main job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement

from tests.profiling.made import CEILINGS
from tilewright import __version__
from tilewright.environment import cpu_cores
from tilewright.profiling import ceilings
from tilewright.runtime.cpu import open_runtime
from tilewright.runtime.device import CPU

# One worker builds it, for all.
pytestmark = pytest.mark.xdist_group("wheel")
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq"]


# What a clone has, and nothing that tools or users leave beside it.
IN_THE_ROOT = {
    ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "PKG-INFO", "README.md",
    "benchmarks", "docs", "install.py", "mkdocs.yml", "pyproject.toml", "src", "tests",
}  # fmt: skip


@pytest.fixture(scope="module")
def built(request, tmp_path_factory):
    """Both, the wheel from the source distribution, with the builder that tests install."""
    out = tmp_path_factory.mktemp("built")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, request.config.rootpath],
        check=True, capture_output=True,
    )  # fmt: skip
    return out


@pytest.fixture(scope="module")
def wheel(built):
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def in_the_sdist(built):
    """The names of its files, and what it says of itself."""
    folder = f"tilewright-{__version__}"
    with tarfile.open(built / f"{folder}.tar.gz") as archive:
        names = {name.removeprefix(f"{folder}/") for name in archive.getnames()}
        return names, archive.extractfile(f"{folder}/PKG-INFO").read()


def test_the_source_distribution_is_the_project(in_the_sdist, request):
    root, (names, _) = request.config.rootpath, in_the_sdist
    folders = ("benchmarks", "docs", "src", "tests")
    files = (path for folder in folders for path in (root / folder).rglob("*.*"))
    wanted = {
        str(path.relative_to(root)) for path in files
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".checkpoint"
    }  # fmt: skip
    assert wanted - names == set()
    assert {name.partition("/")[0] for name in names} == IN_THE_ROOT


def test_both_say_the_same_of_themselves_and_it_is_valid(wheel, in_the_sdist):
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    _, said = in_the_sdist
    assert archive.read(name) == said
    valid = Metadata.from_email(said)
    assert str(valid.version) == __version__
    assert valid.description_content_type == "text/markdown"
    assert valid.description.startswith("# Tilewright")


def test_the_version_has_its_place_in_the_changelog(request):
    assert f"\n## [{__version__}] - 20" in (request.config.rootpath / "CHANGELOG.md").read_text()


def test_it_holds_sample_weights_and_licences(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for name in (
        "tilewright/assets/weights/ece408.safetensors",
        "tilewright/assets/weights/cifar10.safetensors",
        "tilewright/assets/fashion-mnist-sample/t10k-images-idx3-ubyte.gz",
        "tilewright/assets/fashion-mnist-sample/LICENSE",
        "tilewright/py.typed",
    ):
        assert name in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert wheel.stat().st_size < 9e6


def needed(by):
    """All that a distribution says it needs, of extras none; as it is installed here."""
    for requirement in map(Requirement, by.requires or ()):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            found = metadata.distribution(requirement.name)
            assert requirement.specifier.contains(found.version, prereleases=True)
            yield found
            yield from needed(found)


def test_installed_alone_it_runs_the_main_job(wheel, tmp_path, monkeypatch):
    """In an environment of what it says it needs, which is taken from here: nothing is fetched.
    What its device can do was found out before, which takes as long as the rest."""
    name = open_runtime(CPU, "resident").describe()
    known = replace(CEILINGS, device=name, processors=cpu_cores())
    monkeypatch.setattr(ceilings, "measure", lambda *given: ceilings.Known(known, ""))
    ceilings.ceilings(CPU, name)
    environment = tmp_path / "venv"
    # Our pip serves the new environment too, which needs none of its own.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    alone = ["install", "--no-compile", "--no-deps", wheel]
    subprocess.run([*PIP, "--python", python, *alone], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    (installed,) = packages.glob("tilewright-*.dist-info")
    for each in needed(metadata.Distribution.at(installed)):
        for top in {file.parts[0] for file in each.files or ()} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(each.locate_file(top))
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [environment / "bin" / "tilewright", "run", "--json", "-"],
        cwd=tmp_path, env=clean, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["accuracy"] > 0.88
    assert document["peak_flops"] == known.flops
    assert "torch" not in document["environment"]["libraries"]
    assert not list(Path(tmp_path).glob("*.json"))
    # What the main job has no use for: Numba.
    loops = [python, "-c", "import tilewright.rungs.cpu.loops"]
    subprocess.run(loops, cwd=tmp_path, env=clean, capture_output=True, check=True)
