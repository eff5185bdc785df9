"""What a search has timed, line by line in a file, so that it goes on where it was stopped.

The first line says what the times are of (device, driver, network, images, version): with another
one the file is refused, since its times would mean something else. Each following line is one
candidate of one part of the network, written and flushed to disk before the next is tried. A line
that was cut off, by a full disk or a kill, is the last one, and is dropped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from tilewright.errors import TilewrightError
from tilewright.files import check_file, reason
from tilewright.tune.search import Candidate, Tried

LARGEST_BYTES = 256 * 2**20
SCHEMA = "tilewright.trials/1"


class Journal:
    """A file of tried candidates by part; `known` has those that it held when it was opened."""

    def __init__(self, path: Path, about: Mapping[str, object]) -> None:
        self.path = path
        self.known: dict[str, dict[Candidate, Tried]] = {}
        header = {"schema": SCHEMA, **about}
        try:
            sound = self._read(header) if path.exists() else 0
            self.file: IO[bytes] = path.open("r+b" if sound else "wb")
            self.file.truncate(sound)
            self.file.seek(sound)
            if not sound:
                self._append(header)
        except OSError as error:
            raise TilewrightError(f"cannot keep trials in {path}: {reason(error)}") from error

    def keep(self, part: str, tried: Tried) -> None:
        """Write down what came of a candidate; it is on the disk when this returns."""
        candidate = tried.candidate
        line = {
            "part": part, "rung": candidate.rung, "precision": candidate.precision,
            "options": candidate.options, "seconds": tried.seconds, "problem": tried.problem,
        }  # fmt: skip
        try:
            self._append(line)
        except OSError as error:
            raise TilewrightError(f"cannot keep trials in {self.path}: {reason(error)}") from error
        self.known.setdefault(part, {})[candidate] = tried

    def close(self) -> None:
        self.file.close()

    def _append(self, line: Mapping[str, object]) -> None:
        self.file.write(json.dumps(line).encode() + b"\n")
        self.file.flush()
        os.fsync(self.file.fileno())

    def _read(self, header: Mapping[str, object]) -> int:
        """Take in the lines that are whole; how many bytes they are."""
        check_file(self.path)
        if self.path.stat().st_size > LARGEST_BYTES:
            raise TilewrightError(f"{self.path} is larger than any list of trials")
        lines = self.path.read_bytes().splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()
        if not lines:
            return 0
        _check_header(self.path, lines[0], header)
        for number, line in enumerate(lines[1:], start=2):
            part, tried = _parsed(self.path, number, line)
            self.known.setdefault(part, {})[tried.candidate] = tried
        return sum(map(len, lines))


def _check_header(path: Path, line: bytes, header: Mapping[str, object]) -> None:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise TilewrightError(f"{path} is not a list of trials: name another file, or remove it")
    for name, wanted in json.loads(json.dumps(header)).items():
        if found.get(name) != wanted:
            raise TilewrightError(
                f"{path} has trials of another {name} ({found.get(name)}, now {wanted}): "
                "name another file, or remove it"
            )


def _parsed(path: Path, number: int, line: bytes) -> tuple[str, Tried]:
    try:
        found = json.loads(line)
        options = tuple((str(name), _frozen(value)) for name, value in found["options"])
        candidate = Candidate(str(found["rung"]), str(found["precision"]), options)
        seconds = tuple(float(each) for each in found["seconds"])
        problem = found["problem"]
        if not all(0 < each < float("inf") for each in seconds) or bool(seconds) == bool(problem):
            raise ValueError("seconds")
        return str(found["part"]), Tried(candidate, seconds, problem and str(problem))
    except (ValueError, KeyError, TypeError) as error:
        raise TilewrightError(
            f"{path}, line {number}: not a trial ({error}): remove the file to begin anew"
        ) from error


def _frozen(value: object) -> object:
    """Lists as tuples, so that a candidate that was read equals the one that was written."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
