"""Choices that took a search, kept on disk: which kernels a network is cut into, and how they work.

To compare all plans of a wide network takes half a second (All-CNN), longer than reading its
machine code. What is kept is the choice, not the plan: that is made of it anew, in milliseconds.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import msgspec

from tilewright.fuse.cuda.choice import Choice
from tilewright.store import key_of, open_store


def read(question: str) -> Choice | None:
    """What was chosen before for a question that says everything the answer depends on."""
    kept = open_store("plans").read(_key(question))
    return None if kept is None else msgspec.json.decode(kept, type=Choice)


def keep(question: str, choice: Choice) -> None:
    open_store("plans").keep(_key(question), msgspec.json.encode(choice))


def _key(question: str) -> str:
    return key_of(question, source(".py"))


@cache
def source(*endings: str) -> bytes:
    """The planner itself, and the building blocks: others may choose, or make, something else."""
    folder = files("tilewright.fuse.cuda")
    texts = sorted((each.name, each) for each in folder.iterdir() if each.name.endswith(endings))
    return b"".join(name.encode() + each.read_bytes() for name, each in texts)
