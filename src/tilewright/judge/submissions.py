"""What a class handed in: a folder with a kernel file, or a sub-folder, a student."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.errors import TilewrightError
from tilewright.files import reason
from tilewright.rungs.own.includes import included_by
from tilewright.terminal import printable

KERNELS = (".cl", ".cu")
LARGEST_FILE = 2**20
MOST_ENTRIES = 1000  # of a student's folder; nobody hands in more by intent


@dataclass(frozen=True)
class Submission:
    """A student's kernel, or `problem`: why there is none to judge. Files are named from the
    folder of the class."""

    student: str
    file: str
    content: bytes = b""
    problem: str | None = None
    included: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Of all that it is made of."""
        return hashlib.sha256(self.content + b"".join(self.included.values())).hexdigest()


def submissions(folder: Path) -> list[Submission]:
    """All of a class, by name. Files that are no kernels are no submissions, nor is what is hidden.

    Links are not followed: what they lead to may not be the student's to hand in.
    """
    try:
        entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise TilewrightError(f"cannot read {folder}: {reason(error)}") from error
    named = [e for e in entries if e.is_symlink() or e.is_dir() or e.suffix in KERNELS]
    if not named:
        raise TilewrightError(
            f"{folder} has nothing to grade: neither a file that ends in {' or '.join(KERNELS)} "
            "nor a folder for each student"
        )
    stems = Counter(_stem(entry) for entry in named)
    return [
        _submission(folder, e, _stem(e) if stems[_stem(e)] == 1 else printable(e.name))
        for e in named
    ]


def _stem(entry: Path) -> str:
    return printable(entry.stem if entry.suffix in KERNELS else entry.name)


def _submission(folder: Path, entry: Path, student: str) -> Submission:
    name = printable(entry.name)
    try:
        file = _only_kernel(entry) if entry.is_dir() and not entry.is_symlink() else entry
        name = printable(str(file.relative_to(folder)))
        content = _content(file)
        included = {name: _content(file.parent / name) for name in included_by(file)}
        return Submission(student, name, content, included=included)
    except TilewrightError as error:
        return Submission(student, name, problem=str(error))
    except OSError as error:
        return Submission(student, name, problem=f"it cannot be read: {reason(error)}")


def _only_kernel(folder: Path) -> Path:
    """The one kernel file in a student's folder, however deep."""
    found: list[Path] = []
    seen = 0
    for inside, _, names in os.walk(folder):
        seen += 1 + len(names)
        if seen > MOST_ENTRIES:
            raise TilewrightError(f"it has more than {MOST_ENTRIES:,} files")
        found += [Path(inside, name) for name in names if name.endswith(KERNELS)]
    if not found:
        raise TilewrightError(f"it has no file that ends in {' or '.join(KERNELS)}")
    if len(found) > 1:
        names = sorted(path.name for path in found)[:5]
        raise TilewrightError(f"it has {len(found)} kernel files ({', '.join(names)}): hand in one")
    return found[0]


def _content(file: Path) -> bytes:
    if file.is_symlink():
        raise TilewrightError("it is a link, and links are not followed")
    if not file.is_file():  # a pipe could be read for ever
        raise TilewrightError("it is not a plain file")
    with file.open("rb") as opened:
        content = opened.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise TilewrightError(f"it is larger than {LARGEST_FILE:,} bytes")
    return content
