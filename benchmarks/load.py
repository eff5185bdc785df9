"""A class under load: is anything lost, or done twice, when workers crash and servers are killed?

    python -m benchmarks.load FOLDER --students 200 --count 2000 --workers 4 --kills 5 [--ray]

Makes a class in a new folder and serves it with a stand-in for the judge, which takes a moment and
then does what the submission says: it may be right, wrong, kill its own process, stand still, or
die the first time only. One student hands in fifty before all others. Meanwhile the server is
killed (SIGKILL) at drawn moments and started again. At the end all is looked at: every submission
that was taken has one verdict, the right one; none was begun more than twice; no two judgings were
on one device at a time; and nobody waited for the fifty.
"""

from __future__ import annotations

import argparse
import datetime
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from tilewright.classroom.course import Task, read_course
from tilewright.classroom.judging import Tell
from tilewright.classroom.locks import opened
from tilewright.classroom.marks import Where
from tilewright.classroom.store import Store, store_of
from tilewright.classroom.workers import LocalPool
from tilewright.cluster.pool import RayPool
from tilewright.results.grade import Judged
from tilewright.runtime.device import Device

# What a submission does, how often among a hundred, and its verdict.
KINDS = {
    "right": (80, "right"),
    "wrong": (14, "wrong"),
    "once": (3, "right"),
    "die": (2, "stopped"),
    "hang": (1, "stopped"),
}
FLOOD = 50
TIMED_SECONDS = 0.01
SILENT_SECONDS = 10.0


@dataclass(frozen=True)
class StandIn:
    """Judges as it is told. `log` has a line when a judging begins and when it ends."""

    log: Path

    def prepare(self, task: Task) -> Where:
        return Where("any", "a stand-in", "none")

    def __call__(self, task: Task, files: Mapping[str, bytes], tell: Tell) -> Judged:
        (content,) = files.values()
        kind, name = content.decode().split()
        first = f" {name} " not in self.log.read_text()
        self._note(f"begin {name} {task.device} {time.monotonic()}")
        tell("timing")
        time.sleep(TIMED_SECONDS)
        if kind == "die" or (kind == "once" and first):
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "hang":
            os.kill(os.getpid(), signal.SIGSTOP)
        self._note(f"end {name} {task.device} {time.monotonic()}")
        if kind == "wrong":
            return Judged(outcome="wrong", reason="as it says")
        times = {"conv1": (TIMED_SECONDS,)}
        return Judged(outcome="right", operations=times, baseline=times)

    def marks(self, task: Task, tell: Tell) -> dict[str, Judged]:
        return {}

    def _note(self, line: str) -> None:
        with self.log.open("a") as file:
            file.write(f"{line}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--students", type=int, default=200)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--kills", type=int, default=5, help="of the server")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ray", action="store_true", help="workers of a local Ray cluster")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        return serve(arguments.folder, arguments.workers, arguments.ray)
    write(arguments.folder, arguments.students)
    begin = time.monotonic()
    kinds = load(arguments)
    problems = list(found_wrong(arguments.folder, kinds))
    print(f"{len(kinds):,} submissions in {time.monotonic() - begin:.0f} s")
    for problem in problems:
        print(f"NOT AS IT MUST BE: {problem}")
    print("nothing lost, nothing double" if not problems else f"{len(problems)} problems")
    return 1 if problems else 0


def write(folder: Path, students: int) -> None:
    (folder / "tasks").mkdir(parents=True)
    (folder / "class.toml").write_text('title = "Load"\nteachers = ["teacher"]\n')
    logins = ["flood", *(f"s{index}" for index in range(students - 1))]
    roster = "".join(f"{login},Student {login}\n" for login in logins)
    (folder / "roster.csv").write_text(f"login,name\n{roster}")
    (folder / "tasks" / "load.toml").write_text('title = "Load"\n')
    (folder / "log").touch()


def serve(folder: Path, workers: int, ray: bool) -> int:
    """Until it is killed."""
    with opened(folder) as (course, store):
        devices = [Device("opencl", number) for number in range(workers)]
        # By the name that other processes know it by, too.
        judge = import_module("benchmarks.load").StandIn(folder / "log")
        given = {"judge": judge, "pause": 0.1, "silent": SILENT_SECONDS}
        if ray:
            pool = RayPool(course, store, None, devices, **given)
        else:
            pool = LocalPool(course, store, devices, **given)
        pool.start()
        while True:
            time.sleep(1)


def load(arguments: argparse.Namespace) -> dict[int, str]:
    """Hand all in, with the server killed in between, and wait; kinds by number."""
    drawn = random.Random(arguments.seed)
    course = read_course(arguments.folder)
    store = store_of(course)
    students = [login for login in course.people if login.startswith("s")]
    logins = FLOOD * ["flood"] + drawn.choices(students, k=arguments.count - FLOOD)
    weights = [share for share, _ in KINDS.values()]
    kills = sorted(drawn.sample(range(arguments.count), arguments.kills))
    server = _started(arguments)
    kinds: dict[int, str] = {}
    try:
        for index, login in enumerate(logins):
            (kind,) = drawn.choices(list(KINDS), weights)
            files = {"mine.cl": f"{kind} {index}".encode()}
            now = datetime.datetime.now(datetime.UTC)
            kinds[store.hand_in(login, course.tasks["load"], files, True, now)] = kind
            if index in kills:
                server.kill()
                server.wait()
                server = _started(arguments)
        while left := len(store.waiting()) + len(store.judging()):
            if server.poll() is not None:
                raise SystemExit("the server ended by itself")
            print(f"\r{left:,} to be judged ", end="", flush=True)
            time.sleep(1)
        print()
    finally:
        server.kill()
        server.wait()
    return kinds


def _started(arguments: argparse.Namespace) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.load", str(arguments.folder), "--serve"]
    on = ["--ray"] if arguments.ray else []
    return subprocess.Popen([*command, "--workers", str(arguments.workers), *on])


def found_wrong(folder: Path, kinds: Mapping[int, str]) -> Iterator[str]:
    """Whatever is not as it must be; what came out is printed."""
    store = store_of(read_course(folder))
    all_of = {each.number: each for each in store.of_task("load")}
    if all_of.keys() != kinds.keys():
        yield f"{len(kinds):,} were taken, and {len(all_of):,} are there"
    done = Counter(event.number for event in _events(store) if event.kind == "done")
    cut = 0
    for number, kind in kinds.items():
        found = all_of[number]
        outcome = found.judged.outcome if found.judged else found.state
        cut += found.attempts == 2
        # Whatever was cut twice by killed servers says so, too.
        by_us = outcome == "stopped" and "the server ended" in (found.judged.reason or "")
        if outcome != KINDS[kind][1] and not by_us:
            yield f"submission {number}, {kind}: {outcome}"
        if done[number] != 1 or found.attempts > 2:
            yield f"submission {number}: {done[number]} verdicts, begun {found.attempts} times"
    yield from _together(folder)
    flooded = sorted(each.turn for each in all_of.values() if each.login == "flood")
    print(f"verdicts: {dict(Counter(each.judged.outcome for each in all_of.values()))}")
    print(f"judged once more because they were cut: {cut}")
    print(f"the fifty of one student had turns {flooded[0]} to {flooded[-1]}")


def _events(store: Store) -> Iterator:
    last = 0
    while some := store.events(last):
        yield from some
        last = some[-1].id


def _together(folder: Path) -> Iterator[str]:
    """Two on one device at a time."""
    open_on: dict[str, tuple[str, float]] = {}
    for line in sorted(
        (folder / "log").read_text().splitlines(), key=lambda line: float(line.split()[3])
    ):
        what, name, device, moment = line.split()
        if what == "begin":
            open_on[device] = (name, float(moment))
        elif open_on.pop(device, ("", 0.0))[0] != name:
            yield f"{name} ended on {device} when another had begun there"


if __name__ == "__main__":
    sys.exit(main())
