"""A class under load: is anything lost, or done twice, when workers crash and servers are killed?

    python -m benchmarks.load FOLDER [--ray] [--json FILE]

Makes a class in a new folder and serves it with a stand-in for the judge, which takes a moment and
then does what the submission says: it may be right, wrong, kill its own process, stand still, or
die the first time only. One student hands in fifty before all others. Meanwhile, when drawn numbers
of verdicts are there, the server is killed (SIGKILL) and started again, and so are processes of
workers; some are stopped instead (SIGSTOP), and have to be found. At the end all is looked at:
every submission that was taken has one verdict, the right one; none was begun more than twice; no
two judgings were on one device at a time, also none that was cut; and nobody waited for the fifty.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
from benchmarks.stand_in import FLOOD, FLOODS, KINDS, StandIn, facts, found_wrong

from tilewright import environment
from tilewright.classroom.course import read_course
from tilewright.classroom.locks import opened
from tilewright.classroom.store import store_of
from tilewright.classroom.workers import LocalPool
from tilewright.cluster.pool import RayPool
from tilewright.files import atomic_write
from tilewright.runtime.device import Device

SILENT_SECONDS = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--students", type=int, default=200)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--kills", type=int, default=5, help="of the server")
    parser.add_argument("--worker-kills", type=int, default=6, help="every third stands still")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ray", action="store_true", help="workers of a local Ray cluster")
    parser.add_argument("--json", type=Path, metavar="FILE", help="what came of it")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        return serve(given.folder, given.workers, given.ray)
    write(given.folder, given.students)
    begin = time.monotonic()
    kinds, killed = load(given)
    found = {
        "workers": "Ray" if given.ray else "local", "processes": given.workers,
        "students": given.students, "submissions": len(kinds),
        "kinds": dict(Counter(kinds.values())),
        "seconds": round(time.monotonic() - begin, 1), "killed": killed, **facts(given.folder),
        "problems": list(
            found_wrong(given.folder, kinds, given.kills * given.workers + given.worker_kills)
        ),
        "environment": msgspec.to_builtins(environment.fingerprint()),
    }  # fmt: skip
    print("\n".join(f"{name}: {value}" for name, value in found.items() if name != "environment"))
    if given.json:
        with atomic_write(given.json) as file:
            file.write((json.dumps(found, indent=1) + "\n").encode())
    return 1 if found["problems"] else 0


def write(folder: Path, students: int) -> None:
    (folder / "tasks").mkdir(parents=True)
    (folder / "class.toml").write_text('title = "Load"\nteachers = ["teacher"]\n')
    logins = [FLOOD, *(f"s{index}" for index in range(students - 1))]
    roster = "".join(f"{login},Student {login}\n" for login in logins)
    (folder / "roster.csv").write_text(f"login,name\n{roster}")
    (folder / "tasks" / "load.toml").write_text('title = "Load"\n')
    (folder / "log").touch()


def serve(folder: Path, workers: int, ray: bool) -> int:
    """Until it is killed."""
    with opened(folder) as (course, store):
        devices = [Device("opencl", number) for number in range(workers)]
        given = {"judge": StandIn(folder / "log"), "pause": 0.1, "silent": SILENT_SECONDS}
        if ray:
            pool = RayPool(course, store, None, devices, **given)
        else:
            pool = LocalPool(course, store, devices, **given)
        pool.start()
        while True:
            time.sleep(1)


def load(given: argparse.Namespace) -> tuple[dict[int, str], dict[str, int]]:
    """Hand all in and wait, with processes killed meanwhile: kinds by number, and how many."""
    drawn = random.Random(given.seed)
    course = read_course(given.folder)
    store = store_of(course)
    students = [login for login in course.people if login.startswith("s")]
    logins = FLOODS * [FLOOD] + drawn.choices(students, k=given.count - FLOODS)
    weights = [share for share, *_ in KINDS.values()]
    server = Server(given)
    blows: list[tuple[int, Callable[[], str]]] = [
        *((drawn.randrange(given.count), server.again) for _ in range(given.kills)),
        *(
            (drawn.randrange(given.count), Blow(given, number))
            for number in range(given.worker_kills)
        ),
    ]
    blows.sort(key=lambda blow: blow[0])
    kinds: dict[int, str] = {}
    killed: Counter[str] = Counter()
    try:
        for index, login in enumerate(logins):
            (kind,) = drawn.choices(list(KINDS), weights)
            files = {"mine.cl": f"{kind} {index}".encode()}
            now = datetime.datetime.now(datetime.UTC)
            kinds[store.hand_in(login, course.tasks["load"], files, True, now)] = kind
        while left := len(store.waiting()) + len(store.judging()):
            server.check()
            while blows and blows[0][0] <= len(kinds) - left:
                killed[blows.pop(0)[1]()] += 1
            if sys.stdout.isatty():
                print(f"\r{left:,} to be judged ", end="", flush=True)
            time.sleep(0.5)
    finally:
        server.end()
    return kinds, dict(killed)


class Server:
    """The process that serves, killed and started again."""

    def __init__(self, given: argparse.Namespace) -> None:
        command = [sys.executable, "-m", "benchmarks.load", str(given.folder), "--serve"]
        on = ["--ray"] if given.ray else []
        self.command = [*command, "--workers", str(given.workers), *on]
        self.process = subprocess.Popen(self.command)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()

    def again(self) -> str:
        self.end()
        self.process = subprocess.Popen(self.command)
        return "server"

    def check(self) -> None:
        if self.process.poll() is not None:
            raise SystemExit("the server ended by itself")


@dataclass(frozen=True)
class Blow:
    """For whoever judges just now: the process itself, or, on Ray, every other time its parent."""

    given: argparse.Namespace
    number: int

    def __call__(self) -> str:
        still = self.number % 3 == 2
        parent = self.given.ray and self.number % 2 == 1
        while True:
            log = (self.given.folder / "log").read_text()
            process = int(log.rpartition("begin ")[2].split()[1])
            who = _parent(process) if parent else process
            if who is not None and (b"ray::Chair" if parent else b"spawn_main") in _command(who):
                os.kill(who, signal.SIGSTOP if still else signal.SIGKILL)
                return f"{'Ray' if parent else 'judge'} {'stopped' if still else 'killed'}"
            time.sleep(0.05)


def _parent(process: int) -> int | None:
    status = Path(f"/proc/{process}/status")
    return int(status.read_text().partition("PPid:")[2].split()[0]) if status.exists() else None


def _command(process: int) -> bytes:
    line = Path(f"/proc/{process}/cmdline")
    return line.read_bytes() if line.exists() else b""


if __name__ == "__main__":
    sys.exit(main())
