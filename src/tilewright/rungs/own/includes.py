"""Files that a kernel file includes: `#include "tile.h"`, of the same folder or one inside it.

They are put in place of the line that names them, here and before any compiler sees the text:
nothing else of the disk can be had that way, workers need no files, and whatever keeps results by
the text of a kernel knows of a change in any of its files. Lines then count through the whole;
`Part` says which file they are of. What is in angle brackets is the compiler's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from tilewright.rungs.own.expression import HeaderError
from tilewright.runtime.dialect import Part

LARGEST_FILE = 10**6  # bytes of source, with all that is included
MOST_DEEP = 16
SUFFIXES = (".h", ".hpp", ".cuh", ".clh", ".inc")
INCLUDE = re.compile(r'[ \t]*#[ \t]*include[ \t]*"([^"\n]*)"')
ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once\b", re.MULTILINE)
Places = tuple[Part, ...]


def text_of(path: Path) -> str:
    """What a file holds, if it is a plain one with text in it."""
    if path.exists() and not path.is_file():  # a pipe could be read for ever
        raise HeaderError(f"{path} is not a plain file: no kernel file")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise HeaderError(f"cannot read the kernel file {path}: {error.strerror}") from error
    if len(content) > LARGEST_FILE:
        raise HeaderError(f"{path} has more than {LARGEST_FILE:,} bytes: no kernel file")
    try:
        return content.decode("utf-8-sig")  # some editors begin a file with a mark
    except UnicodeDecodeError as error:
        line = 1 + content.count(b"\n", 0, error.start)
        raise HeaderError(f"{path}:{line}: not UTF-8 text") from error


def whole(path: Path) -> tuple[str, Places]:
    """A file's text with all that it includes, and where its lines are from."""
    text = text_of(path)
    if not any(map(INCLUDE.match, text.split("\n"))):
        return text, ()
    found = list(_Reader(path.parent).lines(path, "", text.split("\n"), ()))
    parts = [
        Part(number, file, line)
        for number, (file, line, _) in enumerate(found, 1)
        if number == 1 or (file, line) != _next(found[number - 2])
    ]
    made = "\n".join(line for _, _, line in found)
    if len(made) > LARGEST_FILE:
        raise HeaderError(f"{path} includes more than {LARGEST_FILE:,} bytes")
    return made, tuple(parts)


def included_by(path: Path) -> list[str]:
    """The files that a kernel file includes, by their names from its folder on, each once."""
    try:
        _, parts = whole(path)
    except HeaderError:
        return []  # what is wrong with it is told when it is judged
    return list(dict.fromkeys(part.file for part in parts if part.file))


Line = tuple[str, int, str]  # the file ("" is the kernel file), the number there, the text


def _next(line: Line) -> tuple[str, int]:
    return line[0], line[1] + 1


class _Reader:
    """Goes through a file and those it includes. `folder` is where all of them must lie."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.once: set[str] = set()
        self.size = 0

    def lines(
        self, path: Path, name: str, text: list[str], above: tuple[str, ...]
    ) -> Iterator[Line]:
        for number, line in enumerate(text, 1):
            found = INCLUDE.match(line)
            if found is None:
                yield name, number, line
                continue
            place = f'{path}:{number}: #include "{found[1]:.60}"'
            inside = self._named(found[1], name, place)
            if inside is None:
                yield name, number, line  # of the compiler's own
            elif inside in above or len(above) >= MOST_DEEP:
                raise HeaderError(f"{place}: it includes itself, or too many others")
            elif inside not in self.once:
                yield from self._file(inside, place, above)

    def _file(self, name: str, place: str, above: tuple[str, ...]) -> Iterator[Line]:
        path = self.folder / name
        if path.resolve() != self.folder.resolve() / name:
            raise HeaderError(f"{place}: it is a link, and links are not followed")
        text = text_of(path)
        self.size += len(text)
        if self.size > LARGEST_FILE:
            raise HeaderError(f"{place}: more than {LARGEST_FILE:,} bytes are included")
        if ONCE.search(text):
            self.once.add(name)
            text = ONCE.sub("", text)
        yield from self.lines(path, name, text.removesuffix("\n").split("\n"), (*above, name))

    def _named(self, given: str, by: str, place: str) -> str | None:
        """What an include means, from the kernel file's folder on; None if it is not beside it."""
        plain = PurePosixPath(given)
        if plain.is_absolute() or ".." in plain.parts or "\\" in given or not plain.name:
            raise HeaderError(
                f"{place}: only files in the kernel file's folder can be included, by names "
                "without '..'"
            )
        name = str(PurePosixPath(by).parent / plain) if by else str(plain)
        if not (self.folder / name).exists():
            return None
        if plain.suffix not in SUFFIXES:
            raise HeaderError(f"{place}: files to include end in {', '.join(SUFFIXES)}")
        return name
