"""What is chosen about a network's kernels, as plain data: a plan holds it, and a file can."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tilewright.fuse.chosen import Chosen

Positive = Annotated[int, msgspec.Meta(ge=1)]


class Stacked(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="stack", tag_field="kind"
):
    """A kernel that takes so many operations from an image to a result, all of them in a group.

    `division` is which of the ways to divide an image into strips, `weight` what a unit of work
    was held to weigh when it was shared out over the warps (`arrange`).
    """

    operations: Positive
    division: int
    warps: int
    groups: int
    weight: float


class Multiplied(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="dense", tag_field="kind"
):
    """A kernel of large fully connected layers, over the batch (`dense`)."""

    operations: Positive
    warps: int
    columns: int
    more: int
    chunk: int
    stages: int


class Connected(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="connected", tag_field="kind"
):
    """A kernel of one fully connected layer, and softmax if it takes two operations (`panels`).

    Of up to `few` images it works as is best for few.
    """

    operations: Positive
    few: Annotated[int, msgspec.Meta(ge=0)]


class Choice(Chosen, frozen=True, forbid_unknown_fields=True):
    """All kernels, for a generation of GPUs.

    Blocks, or the warps of a block, share the long sums of large fully connected layers where
    images are few, unless they are told not to (`share_sums`).
    """

    generation: str
    kernels: tuple[Stacked | Multiplied | Connected, ...]
    share_sums: bool = True
