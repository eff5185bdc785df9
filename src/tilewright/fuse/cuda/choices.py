"""Choices that took a search, kept on disk: which kernels a network is cut into, and how they work.

To compare all plans of a wide network takes half a second (All-CNN), longer than reading its
machine code. What is kept is the choice, not the plan: that is made of it anew, in milliseconds.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from tilewright.store import key_of, open_store


class Arrangement(NamedTuple):
    """What was chosen: which of the ways to divide an image, warps, groups, and units' weight."""

    division: int
    warps: int
    groups: int
    weight: float


class Choice(NamedTuple):
    """A kernel: after how many operations it ends, and its arrangement."""

    end: int
    arrangement: Arrangement


def read(question: str) -> list[Choice] | None:
    """What was chosen before for a question that says everything the answer depends on."""
    kept = open_store("plans").read(_key(question))
    if kept is None:
        return None
    return [Choice(end, Arrangement(*chosen)) for end, chosen in json.loads(kept)]


def keep(question: str, choices: list[Choice]) -> None:
    open_store("plans").keep(_key(question), json.dumps(choices).encode())


def _key(question: str) -> str:
    return key_of(question, _source())


@cache
def _source() -> bytes:
    """The planner itself: another one may choose otherwise."""
    folder = files("tilewright.fuse.cuda")
    texts = sorted((each.name, each) for each in folder.iterdir() if each.name.endswith(".py"))
    return b"".join(name.encode() + each.read_bytes() for name, each in texts)
