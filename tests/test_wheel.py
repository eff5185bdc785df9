"""A wheel, installed alone in a clean environment, does the main job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

# One worker builds it, for both.
pytestmark = pytest.mark.xdist_group("wheel")
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq"]


@pytest.fixture(scope="module")
def wheel(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", out, request.config.rootpath],
        check=True, capture_output=True,
    )  # fmt: skip
    (built,) = out.glob("*.whl")
    return built


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


def test_installed_alone_it_runs_the_main_job(wheel, tmp_path):
    environment = tmp_path / "venv"
    # Our pip serves the new environment too, which needs none of its own.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    subprocess.run([*PIP, "--python", python, "install", "--no-compile", wheel], check=True)
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [environment / "bin" / "tilewright", "run", "--json", "-"],
        cwd=tmp_path, env=clean, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["accuracy"] > 0.88
    assert "torch" not in document["environment"]["libraries"]
    assert not list(Path(tmp_path).glob("*.json"))
    serial = [environment / "bin" / "tilewright", "run", "--rung", "serial", "--images", "2"]
    subprocess.run(serial, cwd=tmp_path, env=clean, capture_output=True, check=True)
