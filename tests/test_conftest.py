"""What the tests keep and leave out, where it could go stale unseen."""

from __future__ import annotations

import atexit
import os
import pickle
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from tests import conftest, depth, examples, handing_out
from tests.conftest import OF_CACHING, SHARED, SLOW, Homes
from tests.kept import compile_cubin
from tests.runtime.test_opencl import DOUBLE
from tilewright.errors import TilewrightError
from tilewright.runtime import nvrtc, opencl
from tilewright.runtime.device import OPENCL

ROOT = Path(__file__).resolve().parents[1]


def test_what_is_named_is_there():
    for prefix in (*SLOW, *OF_CACHING, *depth.ONE_IN, *depth.LEFT_OUT):
        file, _, name = prefix.partition("::")
        assert f"def {name}" in (ROOT / file).read_text()


def test_a_worker_leaves_at_once_and_nobody_else_does(monkeypatch):
    at_the_end = []
    monkeypatch.setattr(atexit, "register", lambda *call: at_the_end.append(call))
    conftest.pytest_sessionstart(SimpleNamespace(config=SimpleNamespace()))
    assert at_the_end == []
    conftest.pytest_sessionstart(SimpleNamespace(config=SimpleNamespace(workerinput={})))
    assert at_the_end == [(os._exit, 0)]


class Case:
    def __init__(self, nodeid):
        self.nodeid = nodeid


class Asked:
    """As much of pytest's configuration as says what is to be run."""

    def __init__(self, deep=False, args=("tests",)):
        self.deep, self.args, self.hook, self.left = deep, args, self, []

    def getoption(self, name):
        return self.deep

    def pytest_deselected(self, items):
        self.left += items


def test_make_test_tries_a_part_and_make_deep_everything():
    (long, many), (out, *_) = max(depth.ONE_IN.items(), key=lambda each: each[1]), depth.LEFT_OUT
    names = [f"{long}[{number}]" for number in range(2 * many)]
    cases = [Case(name) for name in (*names, out, "tests/test_a.py::test_b")]
    for asked in (Asked(deep=True), Asked(args=("tests/test_a.py",))):
        kept = list(cases)
        depth.pytest_collection_modifyitems(asked, kept)
        assert kept == cases and not asked.left
    asked, kept = Asked(), list(cases)
    depth.pytest_collection_modifyitems(asked, kept)
    found = [case.nodeid for case in kept]
    assert found == [names[0], names[many], "tests/test_a.py::test_b"]
    assert {case.nodeid for case in asked.left} == {*names, out} - {*found}


def test_make_fuzz_draws_more_and_others_everywhere(request):
    """A number that a test gives hypothesis itself would bind there, too."""
    if request.config.getoption("hypothesis_profile") is None:
        assert settings.default.derandomize and examples.examples(7).max_examples == 7
        assert examples.examples(7).derandomize
        # Nor does what is drawn depend on which of our modules are imported.
        assert not providers.is_local_module_file(nvrtc.__file__)
    for file in (ROOT / "tests").rglob("test_*.py"):
        assert not re.search(r"@(hypothesis\.)?settings\(", file.read_text()), file


@pytest.mark.parametrize("ci", [{}, {"CI": "true"}])
def test_examples_are_drawn_in_ci_as_anywhere(ci):
    """Hypothesis has other defaults where it finds a variable of CI: `fuzz` drew nothing new."""
    text = (
        "from hypothesis import settings; from tests import examples\n"
        "for name in ('test', 'fuzz'):\n"
        "    drawn = settings.get_profile(name)\n"
        "    print(name, drawn.derandomize, drawn.max_examples // examples.USUAL, drawn.deadline,\n"
        "          drawn.database is not None)"
    )
    usual = {key: value for key, value in os.environ.items() if key in ("PATH", "PYTHONPATH")}
    found = subprocess.run(
        [sys.executable, "-c", text], cwd=ROOT, env=usual | ci, text=True, capture_output=True
    )
    assert found.stdout.splitlines() == ["test True 1 None False", "fuzz False 10 None True"], found


@pytest.mark.xdist_group("alone")
def test_a_group_of_tests_is_for_one_worker(request):
    """pytest-xdist tells it from the name, and says nothing where pytest keeps names elsewhere:
    then each worker simulates, builds and uses a GPU for itself."""
    if not request.config.getoption("loadgroup", False):
        pytest.skip("without workers: --numprocesses 2 --dist loadgroup")
    assert request.node.nodeid.endswith("@alone")


def test_the_users_folders_are_neither_read_nor_written(own_cache):
    assert Path(os.environ["POCL_CACHE_DIR"]).is_relative_to(ROOT)
    assert Path(os.environ["XDG_CACHE_HOME"]) == own_cache


@pytest.mark.skipif(bool(opencl.missing(OPENCL)), reason=str(opencl.missing(OPENCL)))
def test_pocl_keeps_what_it_compiles_where_it_is_told(tmp_path):
    text = "import pickle, sys, numpy; from tilewright.runtime import device, opencl\n"
    text += "runtime = opencl.open_runtime(device.OPENCL, 'resident')\n"
    text += "x = runtime.upload(numpy.ones(1, 'f'))"
    text += "\nkernel = runtime.compile(pickle.load(sys.stdin.buffer))"
    text += "\nruntime.enqueue(kernel, (1, 1, 1), [x, x], ()); assert runtime.download(x)[0] == 2"
    environment = os.environ | {"POCL_CACHE_DIR": str(tmp_path / "pocl")}
    given = pickle.dumps(DOUBLE)
    subprocess.run([sys.executable, "-c", text], input=given, env=environment, check=True)
    assert list((tmp_path / "pocl").rglob("*.so"))


@pytest.mark.skipif(nvrtc.missing() is not None, reason=str(nvrtc.missing()))
def test_a_cubin_is_compiled_once(monkeypatch, tmp_path):
    monkeypatch.setattr("tests.kept.KEPT", tmp_path)
    text = 'extern "C" __global__ void once(float *out) { out[0] = 1; }'
    first = compile_cubin("once", text, "sm_90")

    def refuse(*question):
        raise TilewrightError("asked again")

    monkeypatch.setattr(nvrtc, "compile_cubin", refuse)
    assert compile_cubin("once", text, "sm_90") == first
    for other in (("once", text, "sm_80"), ("once", text + " ", "sm_90")):
        with pytest.raises(TilewrightError, match="asked again"):
            compile_cubin(*other)


def test_tests_of_a_file_go_to_a_worker_together():
    few, many = handing_out.SLOW_TOGETHER, handing_out.QUICK_TOGETHER
    names = [f"a.py::test[{number}]" for number in range(many + 1)]
    names += [f"b.py::test_{number}" for number in range(many - 1)]
    names += [f"b.py::test_slow_{number}" for number in range(few + 1)]
    found = handing_out.together(names, lambda name: "slow" in name)
    sizes = Counter(found.values())
    assert list(found) == names
    assert sizes == {
        names[0]: many, names[many]: 1, "b.py::test_0": many - 1, "b.py::test_slow_0": few,
        f"b.py::test_slow_{few}": 1,
    }  # fmt: skip


def test_a_home_is_for_many_tests_until_something_is_left_there(tmp_path):
    homes = Homes(tmp_path)
    first = homes.shared()
    assert homes.shared() == first
    assert {path.name for path in (first / "tilewright").iterdir()} == {*SHARED}
    for place in ("kept", "tilewright/fetched"):
        used = homes.shared()
        (used / place).mkdir()
        assert homes.shared() != used
        assert not (homes.shared() / place).exists()
    used = homes.shared()
    used.chmod(0o500)
    assert homes.shared() != used
    assert list(homes.bare().iterdir()) == []
