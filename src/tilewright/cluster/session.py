"""A Ray cluster to work on: one that runs already, or one of this machine's own for a while.

What is started here is quiet, tells nobody of its use, and is gone afterwards with all its files,
whatever ended the work.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType

from tilewright import __version__
from tilewright.cluster.folder import short_folder
from tilewright.environment import cpu_cores
from tilewright.errors import TilewrightError
from tilewright.interrupts import held_back

# For Ray's own processes: no report of use to its makers; no notes that only they understand.
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
SILENT = {"logging_level": logging.ERROR, "log_to_driver": False}
REACH_SECONDS = 10.0
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
RAISED = re.compile(r"[\w.]*(Error|Exception)\b.*")
OBJECTS_BYTES = 512 << 20  # of memory that its processes share; what does not fit goes to disk


def library() -> ModuleType:
    """Ray, or how to get it."""
    try:
        return import_module("ray")
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise TilewrightError(
            "a cluster needs Ray, which is not installed: pip install 'tilewright[cluster]'"
        ) from error


@contextmanager
def connected(address: str | None, processors: int = 1) -> Iterator[None]:
    """Inside, there is a cluster: at an address, the one that this program is connected to
    already, or a new one on this machine, with at least so many processors by its books.
    """
    ray = library()
    if ray.is_initialized():
        if address is not None:
            raise TilewrightError(
                f"--address {address}: this program is connected to a Ray cluster already"
            )
        yield
        return
    with short_folder() as folder, _settings(QUIET):
        try:
            if address is None:
                _start(ray, processors, folder)
            else:
                _join(ray, address)
            # It would print what it thinks of workers that die; we say what it means for the run.
            ray._private.worker._worker_logs_enabled = False
            yield
        finally:
            with held_back():
                ray.shutdown()


def machines() -> list[tuple[int, int]]:
    """The processors and GPUs of each machine of the cluster, by its books. One without processors
    (often the head of a cluster) has no room for a worker.
    """
    found = [node["Resources"] for node in library().nodes() if node["Alive"]]
    return [(int(has["CPU"]), int(has.get("GPU", 0))) for has in found if has.get("CPU", 0) >= 1]


@contextmanager
def in_one_line() -> Iterator[None]:
    """Ray's errors are pages long."""
    try:
        yield
    except library().exceptions.RayError as error:
        raise TilewrightError(f"a worker could not go on: {cause(str(error))}") from error


def cause(words: str) -> str:
    """What Ray's pages end with, if that is an error of the worker's; else how they begin."""
    plain = COLOUR.sub("", words).strip()
    last = plain.rpartition("\n")[2].strip()
    return last if RAISED.match(last) else f"{' '.join(plain.split()):.300}"


def _start(ray: ModuleType, processors: int, folder: Path) -> None:
    # Half a cluster cannot be ended: Ctrl-C waits.
    with _own_signals(), _unheard(), held_back():
        ray.init(
            address="local", num_cpus=max(processors, cpu_cores()), include_dashboard=False,
            object_store_memory=OBJECTS_BYTES, _temp_dir=str(folder), **SILENT,
        )  # fmt: skip


def _join(ray: ModuleType, address: str) -> None:
    try:
        _reach(address)
    except OSError as error:
        raise TilewrightError(f"no Ray cluster answers at {address}: {error}") from error
    try:
        with _own_signals(), _unheard():
            ray.init(address=address, **SILENT)
    except Exception as error:  # each kind of address has its own
        words = " ".join(str(error).split())
        raise TilewrightError(
            f"cannot work with the Ray cluster at {address}: {words:.300} (one that "
            "asks for a token wants RAY_AUTH_MODE=token and the token of `ray get-auth-token`)"
        ) from error
    check_versions(address, versions())


def versions() -> list[tuple[str, str | None]]:
    """Every machine of the cluster and its Tilewright; None where there is none."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def version() -> str | None:
        # Sent as it is, not by its name in a module that may not be there.
        try:
            import tilewright
        except ImportError:
            return None
        return tilewright.__version__

    ray = library()
    nodes = [node for node in ray.nodes() if node["Alive"]]
    on = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in nodes]
    asked = ray.remote(num_cpus=0)(version)
    with in_one_line():
        found = ray.get([asked.options(scheduling_strategy=each).remote() for each in on])
    return [(node["NodeManagerHostname"], each) for node, each in zip(nodes, found, strict=True)]


def check_versions(address: str, found: Sequence[tuple[str, str | None]]) -> None:
    """Refuse machines with another Tilewright: what is sent there would be misunderstood."""
    for machine, version in found:
        if version != __version__:
            raise TilewrightError(
                f"the Ray cluster at {address}: {machine} has "
                f"{f'Tilewright {version}' if version else 'no Tilewright'}, and this command is "
                f"of {__version__}: install the same on all machines"
            )


def _reach(address: str) -> None:
    """Whether anybody listens there: Ray itself would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), REACH_SECONDS).close()


@contextmanager
def _settings(wanted: Mapping[str, str]) -> Iterator[None]:
    """Settings of processes that are started inside; a user's own are left alone."""
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


@contextmanager
def _unheard() -> Iterator[None]:
    """What Ray's own libraries write to standard error while they start goes nowhere: among it is
    the news that they were told to be quiet. What goes wrong is raised.
    """
    usual, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(usual, 2)
        os.close(usual)
        os.close(nowhere)


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray takes SIGTERM for itself and would end this process without a word."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    usual = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, usual)
