"""What all tests share: where compiled code is kept, the thesis's data where it is at hand."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

# Before anything imports NumPy or PyTorch: two workers with the threads of two libraries each wait
# for one another on two cores, most of the time (the verifier's truth takes seven times as long).
for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

from hypothesis import settings  # noqa: E402

from tests import cpu_level, depth, examples, handing_out, quick_builds  # noqa: E402, F401
from tests.cpu_level import pytest_configure  # noqa: E402, F401
from tests.depth import one_in  # noqa: E402, F401
from tests.kept import KEPT  # noqa: E402
from tilewright.judge import office, sandbox  # noqa: E402
from tilewright.judge.connection import Connection  # noqa: E402

quick_builds.install()

# Before anything imports pyopencl: PoCL looks once, when it starts. What it compiles is kept from
# run to run and shared by the workers, which takes a tenth of the time; the user's own folders are
# neither read nor written. A test of caching itself names a fresh folder to a process of its own.
os.environ["POCL_CACHE_DIR"] = str(KEPT / "pocl")
os.environ["XDG_CACHE_HOME"] = str(KEPT / "home")

# The thesis's weights and images are not the project's to ship: they lie beside the clone.
HERE = Path(__file__).resolve().parent
BESIDE = HERE.parents[1] / "shared" / "data"

# What `make check` leaves out: files whose tests compile, try or start processes for more than a
# tenth of a second each, and single tests of seconds. The rest takes a fifth of the time.
SLOW = (
    "tests/classroom/test_judging.py",
    "tests/classroom/test_store.py",
    "tests/classroom/test_workers.py",
    "tests/classroom/web/test_browser.py",
    "tests/classroom/web/test_commands.py::test_what_was_accepted",
    "tests/cli/test_explain.py",
    "tests/cli/test_format.py",
    "tests/cli/test_history.py::test_a_ladder",
    "tests/cli/test_hostile.py",
    "tests/cli/test_kernel.py",
    "tests/cli/test_kernel_check.py",
    "tests/cli/test_ladder.py",
    "tests/cli/test_main.py::test_ctrl_c_in_mid_run",
    "tests/cli/test_profile.py",
    "tests/cli/test_report.py",
    "tests/cli/test_run.py",
    "tests/cli/test_train.py",
    "tests/cli/test_tune.py",
    "tests/cluster/test_ray.py",
    "tests/fuse/cpu/test_arm.py",
    "tests/fuse/cpu/test_build.py",
    "tests/fuse/cpu/test_generate.py",
    "tests/fuse/cpu/test_nan.py",
    "tests/fuse/cpu/test_run.py",
    "tests/fuse/cpu/test_team.py",
    "tests/fuse/cpu/test_tickets.py",
    "tests/fuse/cpu/test_winograd.py",
    "tests/fuse/cuda/test_alternatives.py",
    "tests/fuse/cuda/test_branches.py",
    "tests/fuse/cuda/test_cubins.py",
    "tests/fuse/cuda/test_not_finite.py",
    "tests/fuse/cuda/test_schedule.py",
    "tests/fuse/cuda/test_steps.py",
    "tests/fuse/cuda/test_steps_dense.py",
    "tests/judge/test_bench.py",
    "tests/judge/test_isolation.py",
    "tests/judge/test_red_team.py",
    "tests/judge/test_referee.py",
    "tests/judge/test_remote.py",
    "tests/measure/test_samples.py",
    "tests/model/formats/test_modules.py",
    "tests/model/formats/test_torch_import.py",
    "tests/profiling/test_start.py",
    "tests/results/test_history.py",
    "tests/rungs/cpu/test_explain.py",
    "tests/rungs/cpu/test_fused_winograd.py",
    "tests/rungs/cpu/test_loops.py",
    "tests/rungs/own/test_start.py",
    "tests/rungs/test_rungs.py",
    "tests/runtime/test_dialect.py::test_kernels_of",
    "tests/runtime/test_pocl.py",
    "tests/runtime/test_races.py",
    "tests/runtime/test_strict.py",
    "tests/serving/test_host.py",
    "tests/test_climb.py",
    "tests/test_conftest.py::test_pocl_keeps",
    "tests/test_docs.py::test_python_runs",
    "tests/test_docs.py::test_the_site_is_built",
    "tests/test_kinds.py::test_a_new_kind_runs",
    "tests/test_outputs_page.py",
    "tests/test_plan_file.py",
    "tests/test_train.py",
    "tests/test_wheel.py",
    "tests/test_your_kernel.py",
    "tests/truth/test_diagnose.py",
    "tests/truth/test_fast.py",
    "tests/truth/test_isolation.py",
    "tests/truth/test_sanitize.py",
    "tests/truth/test_verify.py",
    "tests/verbs/test_results.py",
    "tests/views/report/test_browser.py",
    "tests/views/report/test_page.py",
    "tests/views/test_profile.py",
)

LONGEST = ("tests/cluster/test_ray.py", "tests/test_wheel.py", "tests/truth/test_verify.py")

# Kinds of what a user's cache has, and their folders among what is kept: keys say all that the
# content depends on. PoCL's own cache is `pocl`; what was found out about PoCL is another.
SHARED = {
    **{kind: kind for kind in ("compiled", "plans", "numba", "judged")},
    "pocl": "pocl-works",
}

# Tests of caching itself, which find nothing kept.
OF_CACHING = (
    "tests/cli/test_cache.py",
    "tests/fuse/cpu/test_build.py",
    "tests/fuse/cuda/test_schedule.py::test_deep_networks",
    "tests/rungs/cpu/test_loops.py::test_machine_code",
    "tests/rungs/cpu/test_loops.py::test_a_cache",
    "tests/runtime/test_pocl.py",
    "tests/test_store.py",
)

# Objects until garbage is looked for among the youngest, and how often among the older ones.
SELDOM = 50_000, 20, 20

settings.load_profile("test")  # `--hypothesis-profile fuzz` comes later, and stands


def _beside(name: str) -> Path:
    path = BESIDE / name
    if not path.is_dir():
        pytest.skip(f"{name} is not beside the project (shared/data/{name})")
    return path


@pytest.fixture(scope="session")
def thesis_weights() -> Path:
    return _beside("convnetjs-cifar10")


@pytest.fixture(scope="session")
def thesis_images() -> Path:
    return _beside("cifar-10-batches-bin")


@pytest.fixture
def not_optimised(monkeypatch: pytest.MonkeyPatch) -> None:
    """For code that computes next to nothing: PoCL's, and LLVM's in a quarter of the time."""
    monkeypatch.setattr("tests.quick_builds.asked_for", quick_builds.NOT_OPTIMISED)
    monkeypatch.setattr("tilewright.fuse.cpu.build.OPTIMISATION", 0)


@pytest.fixture
def workers_that_build_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge's workers build as the test does: what they may do is the same."""
    usual = sandbox.environment

    def environment(*given: Any) -> dict[str, str]:
        made = usual(*given)
        folders = [str(HERE / "in_workers"), str(HERE.parent), made["PYTHONPATH"]]
        return made | {
            "PYTHONPATH": os.pathsep.join(folders),
            quick_builds.FOR_WORKERS: quick_builds.asked_for,
        }

    monkeypatch.setattr(sandbox, "environment", environment)


@pytest.fixture
def quick_workers(workers_that_build_quickly: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """They also find what others built: for kernels that mean no harm."""

    def connection(device: Any, native: bool, allowance: Any, kept: Path | None, *more: Any) -> Any:
        return Connection(device, native, allowance, kept or KEPT / "judge", *more)

    monkeypatch.setattr(office, "Connection", connection)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's Chromium, through Playwright; whoever takes it is of the group `browser`.

    Without what it would load into every window for an address bar that nobody sees, which takes a
    third of all its time (Chromium 156, 2026-11-16).
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        program = shutil.which("chromium")
        quick = "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup"
        opened = started.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu", quick]
        )
        yield opened
        opened.close()


@pytest.fixture
def press_ctrl_c() -> Iterator[Callable[[], None]]:
    """As a user at a terminal does; a job in the background would ignore it."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: os.kill(os.getpid(), signal.SIGINT)
    signal.signal(signal.SIGINT, usual)


class Homes:
    """Folders for what a test would fetch, measure or keep: one for many tests, and another as soon
    as one of them left something there. To make one takes longer than most tests.
    """

    def __init__(self, base: Path) -> None:
        self.base, self.used = base, 0
        self.home: Path | None = None
        self.as_made: tuple[object, ...] = ()
        for kept in SHARED.values():
            (KEPT / kept).mkdir(mode=0o700, parents=True, exist_ok=True)

    def bare(self) -> Path:
        """A new one, of which nothing is shared."""
        home = self.base / f"folder-{self.used}"
        home.mkdir(mode=0o700)
        self.used += 1
        return home

    def shared(self) -> Path:
        """One with what tests share, and nothing else."""
        if self.home is None or _looks(self.home) != self.as_made:
            self.home = self.bare()
            (self.home / "tilewright").mkdir(mode=0o700)
            for kind, kept in SHARED.items():
                (self.home / "tilewright" / kind).symlink_to(KEPT / kept)
            self.as_made = _looks(self.home)
        return self.home


def _looks(home: Path) -> tuple[object, ...]:
    """Changes with whatever comes into the folders, leaves them, or is permitted there."""
    try:
        return tuple(
            (folder.stat().st_mode, {path.name for path in folder.iterdir()})
            for folder in (home, home / "tilewright")
        )
    except OSError:
        return ()


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Homes:
    return Homes(tmp_path_factory.getbasetemp())


@pytest.fixture
def tmp_path(homes: Homes) -> Path:
    """As pytest's own, which looks through those of all tests before for a name that is free."""
    return homes.bare()


@pytest.fixture(autouse=True)
def own_cache(
    request: pytest.FixtureRequest, homes: Homes, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """No test sees, or leaves anything in, what another or the user has fetched or measured.

    What is compiled lies under keys made of all it depends on: that, tests and runs share.
    """
    of_caching = request.node.nodeid.startswith(OF_CACHING)
    home = homes.bare() if of_caching else homes.shared()
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "kept"))
    return home


def pytest_make_parametrize_id(val: object) -> str | None:
    """Workers tell each other the names of tests: those of megabytes are called by their length."""
    return f"{len(val)} long" if isinstance(val, str | bytes) and len(val) > 500 else None


def pytest_addoption(parser: pytest.Parser) -> None:
    cpu_level.pytest_addoption(parser)
    depth.pytest_addoption(parser)


def pytest_sessionstart(session: pytest.Session) -> None:
    """A worker leaves as soon as it is done: Python would take apart, piece by piece, all that its
    tests have left. What is registered from here on for the end is called before that."""
    if hasattr(session.config, "workerinput"):
        atexit.register(os._exit, 0)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Whatever is imported or collected stays: looking for garbage among it, again and again, takes
    a third of the time. Of what tests make little is garbage that is not gone by itself: to look
    for it as often as is usual takes a fourteenth of theirs (1.6 s of 22)."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*SELDOM)
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """For `--dist loadgroup`; None leaves it to pytest-xdist."""
    if config.getoption("dist") != "loadgroup":
        return None
    return handing_out.scheduler(config, log, lambda name: name.startswith(SLOW))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    depth.pytest_collection_modifyitems(config, items)
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("cuda"):
            item.add_marker(pytest.mark.xdist_group("gpu"))  # one worker has it for itself
    # The longest come first: at the end the other workers would wait for them.
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))
