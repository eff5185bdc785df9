"""A stand-in for the judge of a class under load, and whether all is as it must be afterwards."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tilewright.classroom.course import Task, read_course
from tilewright.classroom.judging import Tell
from tilewright.classroom.marks import Where
from tilewright.classroom.store import Store, store_of
from tilewright.results.grade import Judged

# What a submission does: how often among a hundred, its verdict, how often it cuts its judging.
KINDS = {
    "right": (80, "right", 0),
    "wrong": (14, "wrong", 0),
    "once": (3, "right", 1),
    "die": (2, "stopped", 2),
    "hang": (1, "stopped", 2),
}
FLOOD, FLOODS = "flood", 50  # who hands in so many before all others
TIMED_SECONDS = 0.01


@dataclass(frozen=True)
class StandIn:
    """Judges as it is told.

    `log` has a line when a judging begins, with its process. Each device has a file that is locked
    while something is timed on it: whoever finds it locked is not alone, and says so there.
    """

    log: Path

    def prepare(self, task: Task) -> Where:
        return Where("any", "a stand-in", "none")

    def __call__(self, task: Task, files: Mapping[str, bytes], tell: Tell) -> Judged:
        (content,) = files.values()
        kind, name = content.decode().split()
        first = f"begin {name} " not in self.log.read_text()
        self._note(f"begin {name} {os.getpid()}")
        tell("timing")
        # The system lets go of it when this process ends, however it ends.
        with (self.log.parent / f"timing-{task.device}").open("w") as device:
            try:
                fcntl.flock(device, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._note(f"together {name} {task.device}")
            time.sleep(TIMED_SECONDS)
            if kind == "die" or (kind == "once" and first):
                os.kill(os.getpid(), signal.SIGKILL)
            if kind == "hang":
                os.kill(os.getpid(), signal.SIGSTOP)
        if kind == "wrong":
            return Judged(outcome="wrong", reason="as it says")
        times = {"conv1": (TIMED_SECONDS,)}
        return Judged(outcome="right", operations=times, baseline=times)

    def marks(self, task: Task, tell: Tell) -> dict[str, Judged]:
        return {}

    def _note(self, line: str) -> None:
        with self.log.open("a") as file:
            file.write(f"{line}\n")


def found_wrong(folder: Path, kinds: Mapping[int, str], most_cut: int) -> Iterator[str]:
    """Whatever is not as it must be, where at most so many judgings were cut by us."""
    store = store_of(read_course(folder))
    all_of = {each.number: each for each in store.of_task("load")}
    if all_of.keys() != kinds.keys():
        yield f"{len(kinds):,} were taken, and {len(all_of):,} are there"
    done = Counter(event.number for event in _events(store) if event.kind == "done")
    cut = 0
    for number in kinds.keys() & all_of.keys():
        (_, expected, own), found = KINDS[kinds[number]], all_of[number]
        outcome = found.judged.outcome if found.judged else found.state
        by_us = found.attempts - 1 + (outcome == "stopped") - own
        cut += max(0, by_us)
        # What was cut twice, by us or itself, is stopped, and says so.
        if outcome != expected and not (outcome == "stopped" and by_us):
            yield f"submission {number}, {kinds[number]}: {outcome}"
        if done[number] != 1 or found.attempts > 2:
            yield f"submission {number}: {done[number]} verdicts, begun {found.attempts} times"
    if cut > most_cut:
        yield f"{cut} judgings were cut, and we cut {most_cut} at most"
    turns = {who: median(each.turn for each in all_of.values() if (each.login == FLOOD) == who)
             for who in (True, False)}  # fmt: skip
    if turns[True] < turns[False]:
        yield "the fifty of one student held up the others"
    for line in (folder / "log").read_text().splitlines():
        if line.startswith("together "):
            yield f"{line}: another was timed on that device"


def facts(folder: Path) -> dict[str, object]:
    """What came out of it."""
    all_of = store_of(read_course(folder)).of_task("load")
    flooded = sorted(each.turn for each in all_of if each.login == FLOOD)
    log = (folder / "log").read_text()
    return {
        "verdicts": dict(Counter(each.judged.outcome for each in all_of if each.judged)),
        "judged_once_more": sum(each.attempts == 2 for each in all_of),
        "timings": log.count("begin "), "timings_together": log.count("together "),
        "turns_of_the_fifty": [flooded[0], flooded[-1]],
    }  # fmt: skip


def _events(store: Store) -> Iterator:
    last = 0
    while some := store.events(last):
        yield from some
        last = some[-1].id
