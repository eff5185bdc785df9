"""Records as JSON, and back: what is read is checked field by field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

import msgspec

from tilewright.errors import TilewrightError
from tilewright.files import check_file, reason

LARGEST_FILE = 64 * 2**20
Kind = TypeVar("Kind", bound=msgspec.Struct)


def plain(record: msgspec.Struct) -> dict[str, object]:
    """A record as plain data. Where it was made stands last: it is long, and seldom asked for."""
    made: dict[str, object] = msgspec.to_builtins(record)
    if "environment" in made:
        made["environment"] = made.pop("environment")
    return made


def text(record: msgspec.Struct) -> str:
    """A record as the JSON that commands write."""
    return json.dumps(plain(record), indent=2, allow_nan=False) + "\n"


def line(record: msgspec.Struct) -> str:
    """A record as JSON without white space, to be kept.

    Halves of characters, which names of files may have, become question marks: readers refuse them.
    """
    short = (",", ":")
    made = json.dumps(plain(record), separators=short, ensure_ascii=False, allow_nan=False)
    return made.encode(errors="replace").decode()


def decode(content: bytes | str, kind: type[Kind]) -> Kind:
    """A record from JSON; ValueError says in one line what is wrong with it, and where."""
    try:
        return msgspec.json.decode(content, type=kind)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read(path: Path, kind: type[Kind], what: str) -> Kind:
    """A record that a command wrote to a file; `what` says of what, as in `profile`."""
    content = content_of(path, what)
    try:
        head = decode(content, _Head)
    except msgspec.ValidationError:
        head = _Head()
    except ValueError as error:
        raise TilewrightError(f"{path} is not JSON: {error}") from error
    if head.schema != kind.__struct_config__.tag:
        raise TilewrightError(f"{path} is not a {what} saved by `tilewright {what} --json`")
    try:
        return decode(content, kind)
    except ValueError as error:
        raise TilewrightError(f"{path} is a broken {what}: {error}") from error


def content_of(path: Path, what: str) -> bytes:
    """A file's bytes, unless it is larger than any record."""
    check_file(path)
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise TilewrightError(f"cannot read {path}: {reason(error)}") from error
    if len(content) > LARGEST_FILE:
        limit = LARGEST_FILE // 2**20
        raise TilewrightError(f"{path} is too large for a saved {what}: over {limit} MiB")
    return content


class _Head(msgspec.Struct):
    """What any document begins with."""

    schema: str = ""
