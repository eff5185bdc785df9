"""Judges for tests, which do as a file says: they are sent to processes, so they live here."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from tests.classroom.made import HERE, right
from tilewright.classroom.course import Task
from tilewright.classroom.judging import Tell
from tilewright.classroom.marks import Where
from tilewright.errors import TilewrightError
from tilewright.results.grade import Judged


@dataclass(frozen=True)
class Obedient:
    """What it was asked for is a line in `log`, which all processes add to."""

    log: Path
    broken: str = ""
    driver: str = HERE.driver

    def prepare(self, task: Task) -> Where:
        if self.broken:
            raise TilewrightError(self.broken)
        return replace(HERE, driver=self.driver)

    def __call__(self, task: Task, files: Mapping[str, bytes], tell: Tell) -> Judged:
        (content,) = files.values()
        word, _, detail = content.decode().partition(" ")
        self._note(f"{content.decode()} on {task.device}")
        tell("compiling")
        if word == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if word == "hang":
            os.kill(os.getpid(), signal.SIGSTOP)
        if word == "sleep":
            time.sleep(float(detail))
        first = self.log.read_text().count(content.decode()) == 1
        if word == "once" and first:
            os._exit(3)
        if word == "dawdle" and first:
            time.sleep(60)
        if word == "problem":
            raise TilewrightError(detail)
        if word == "mistake":
            raise KeyError(detail)
        return (
            Judged(outcome="wrong", reason=detail) if word == "wrong" else right(float(detail or 1))
        )

    def marks(self, task: Task, tell: Tell) -> dict[str, Judged]:
        self._note(f"marks of {task.name}")
        if "die" in task.title:
            os._exit(3)
        if "silent" in task.title:
            time.sleep(60)
        while "slow" in task.title:
            tell("timing")
            time.sleep(0.05)
        if "problem" in task.title:
            raise TilewrightError("no marks")
        return {name: right() for name in task.marks}

    def _note(self, line: str) -> None:
        with self.log.open("a") as file:
            file.write(f"{line}\n")
