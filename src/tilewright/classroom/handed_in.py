"""What may be handed in: one kernel file and the headers it includes, all small, plainly named."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from tilewright.errors import TilewrightError
from tilewright.judge.submissions import KERNELS
from tilewright.rungs.own.includes import SUFFIXES

MOST_FILES = 20
MOST_BYTES = 2**20  # of all files
LONGEST_NAME, DEEPEST = 100, 4
PART = re.compile(r"\w[\w .()+-]*")


class NotTaken(TilewrightError):
    """What a student would hand in cannot be taken, and why."""


def kernel_of(files: Mapping[str, bytes]) -> str:
    """The name of the one kernel file; an error unless all files can be taken."""
    if not files:
        raise NotTaken("there is no file")
    if len(files) > MOST_FILES:
        raise NotTaken(f"there are {len(files)} files, and {MOST_FILES} are the most")
    for name, content in files.items():
        _check_name(name)
        if b"\0" in content:
            raise NotTaken(f"{name} is no text")
    if sum(map(len, files.values())) > MOST_BYTES:
        raise NotTaken(f"the files have more than {MOST_BYTES:,} bytes")
    if len({name.casefold() for name in files}) < len(files):
        raise NotTaken("two files have the same name but for small and capital letters")
    kernels = [name for name in files if name.endswith(KERNELS)]
    if len(kernels) != 1:
        many = "there is none" if not kernels else f"there are {len(kernels)}"
        raise NotTaken(f"one file that ends in {' or '.join(KERNELS)} is meant, and {many}")
    if "/" in kernels[0]:
        raise NotTaken(f"{kernels[0]}: the kernel file is in no folder")
    return kernels[0]


def digest(files: Mapping[str, bytes]) -> str:
    """Of all files, by their names and contents."""
    made = hashlib.sha256()
    for name, content in sorted(files.items()):
        made.update(f"{len(content)} {name}\n".encode() + content)
    return made.hexdigest()


def _check_name(name: str) -> None:
    parts = name.split("/")
    if len(name) > LONGEST_NAME or len(parts) > DEEPEST:
        raise NotTaken(
            f"{name[:40]!r}...: a name has at most {LONGEST_NAME} characters and {DEEPEST} parts"
        )
    if not all(
        PART.fullmatch(part) and part.isprintable() and part[-1] not in " ." for part in parts
    ):
        raise NotTaken(
            f"{name!r}: names are of letters, digits, spaces and . _ - + ( ), and lead to no other "
            "folder"
        )
    if not name.endswith((*KERNELS, *SUFFIXES)):
        raise NotTaken(f"{name}: files end in {', '.join((*KERNELS, *SUFFIXES))}")
