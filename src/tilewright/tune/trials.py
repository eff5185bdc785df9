"""The trials of a search in a journal, by the part of the network they are of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from tilewright.journal import Journal, Line
from tilewright.tune.search import Candidate, Tried

SCHEMA = "tilewright.trials/1"


class Trials:
    """What was tried, kept on disk; `known` has it by part.

    `sources` are hashes of the kernel files that rungs come from, by the rung's name: what was
    tried with another content is not known any more.
    """

    def __init__(
        self, path: Path, about: Mapping[str, object], sources: Mapping[str, str] | None = None
    ) -> None:
        self.journal = Journal(path, SCHEMA, about)
        self.sources = sources or {}
        self.known: dict[str, dict[Candidate, Tried]] = {}
        for index, line in enumerate(self.journal.lines):
            try:
                part, tried = _read(line)
            except (ValueError, KeyError, TypeError) as error:
                raise self.journal.broken(index, error) from error
            if line.get("source") == self.sources.get(tried.candidate.rung):
                self.known.setdefault(part, {})[tried.candidate] = tried

    def keep(self, part: str, tried: Tried) -> None:
        candidate = tried.candidate
        self.journal.append({
            "part": part, "rung": candidate.rung, "precision": candidate.precision,
            "options": candidate.plain, "seconds": tried.seconds, "problem": tried.problem,
            "source": self.sources.get(candidate.rung),
        })  # fmt: skip
        self.known.setdefault(part, {})[candidate] = tried


def _read(line: Line) -> tuple[str, Tried]:
    options, seconds, problem = line["options"], line["seconds"], line["problem"]
    if not isinstance(options, dict) or not isinstance(seconds, list):
        raise ValueError("options have names, and seconds are a list")
    times = tuple(float(each) for each in seconds)
    if not all(0 < each < math.inf for each in times) or bool(times) == bool(problem):
        raise ValueError("a trial has seconds or a problem")
    candidate = Candidate.of(str(line["rung"]), str(line["precision"]), options)
    return str(line["part"]), Tried(candidate, times, str(problem) if problem else None)
