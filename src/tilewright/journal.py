"""What a long job has done so far, line by line in a file, so that it goes on where it was stopped.

The first line says what the others are about (device, driver, network, version, ...): with another
one the file is refused, since its lines would mean something else. Each following line is flushed
to disk before the next piece of work begins. A line that was cut off, by a full disk or a kill, is
the last one, and is dropped.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from tilewright.errors import TilewrightError
from tilewright.files import check_file, reason

LARGEST_BYTES = 256 * 2**20

Line = dict[str, object]


class Journal:
    """A file of JSON lines; `lines` are those that it held when it was opened, and since."""

    def __init__(self, path: Path, schema: str, about: Mapping[str, object]) -> None:
        self.path = path
        self.lines: list[Line] = []
        header = {"schema": schema, **about}
        try:
            self.file: IO[bytes] = self._opened()
            sound = self._read(header)
            self.file.truncate(sound)
            self.file.seek(sound)
        except OSError as error:
            raise TilewrightError(f"cannot keep a journal in {path}: {reason(error)}") from error
        if not sound:
            self._write(header)

    def _opened(self) -> IO[bytes]:
        """The file, for this process alone: two that write would write over each other's lines."""
        if self.path.exists():
            check_file(self.path)
        file = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            raise TilewrightError(
                f"{self.path} is being written by another process: wait for it, or name another "
                "file"
            ) from error
        return file

    def append(self, line: Line) -> None:
        """Write a line down; it is on the disk when this returns."""
        self._write(line)
        self.lines.append(line)

    def close(self) -> None:
        self.file.close()

    def broken(self, index: int, problem: object) -> TilewrightError:
        """What to say when a line, by its place among `lines`, is not what it should be."""
        return TilewrightError(
            f"{self.path}, line {index + 2}: not as it was written ({problem}): "
            "remove the file to begin anew"
        )

    def _write(self, line: Mapping[str, object]) -> None:
        try:
            self.file.write(json.dumps(line).encode() + b"\n")
            self.file.flush()
            os.fsync(self.file.fileno())
        except OSError as error:
            raise TilewrightError(
                f"cannot keep a journal in {self.path}: {reason(error)}"
            ) from error

    def _read(self, header: Mapping[str, object]) -> int:
        """Take in the lines that are whole; how many bytes they are."""
        if self.path.stat().st_size > LARGEST_BYTES:
            raise TilewrightError(f"{self.path} is larger than any journal of ours")
        whole = self.path.read_bytes().splitlines(keepends=True)
        if whole and not whole[-1].endswith(b"\n"):
            whole.pop()
        if not whole:
            return 0
        found = _parsed(whole[0])
        if found is None or found.get("schema") != header["schema"]:
            raise TilewrightError(
                f"{self.path} is no journal of this kind: name another file, or remove it"
            )
        for name, wanted in json.loads(json.dumps(header)).items():
            if found.get(name) != wanted:
                raise TilewrightError(
                    f"{self.path} is of another {name} ({found.get(name)}, now {wanted}): "
                    "name another file, or remove it"
                )
        for index, text in enumerate(whole[1:]):
            line = _parsed(text)
            if line is None:
                raise self.broken(index, "no JSON object")
            self.lines.append(line)
        return sum(map(len, whole))


def _parsed(text: bytes) -> Line | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
