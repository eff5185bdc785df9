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
    was held to weigh when it was shared out over the warps (`arrange`); `wide` units are made for
    warpgroups, where these can be (`warpgroups`).
    """

    operations: Positive
    division: int
    warps: int
    groups: int
    weight: float
    wide: bool = False


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


class Spread(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="tiles", tag_field="kind"
):
    """A kernel of one operation's sums, over all multiprocessors (`tiles`)."""

    operations: Positive
    tiles: int
    columns: int
    down: int
    across: int
    deep: int
    chunk: int
    stages: int
    parts: int


class Patched(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="patches", tag_field="kind"
):
    """A kernel of one wide convolution (`patches`): on tensor cores, which may have filters and
    positions exchanged, or without: with so many filters a thread, channels a chunk, and rows a
    patch, and two sums of each or one. Pixels of so many `eights` of images lie beside each other,
    or images are apart; or positions are in a `line`. A block's filters see one of so many
    `sections` of the channels; `sharing` blocks are on a multiprocessor.
    """

    operations: Positive
    images: int
    down: int
    across: int
    groups: int
    wide: int
    stages: int
    pictures: int
    turned: bool = False
    own: int = 0
    depth: int = 0
    high: int = 0
    twice: bool = False
    eights: int = 0
    sections: Positive = 1
    sharing: Positive = 1
    line: bool = False


class Passed(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="passing", tag_field="kind"
):
    """A kernel that passes an operation's words on (`passing`)."""

    operations: Positive = 1


class Few(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Kernels for batches of up to so many images; none where those for many do as well.

    `apart` is as in `Choice`.
    """

    images: Positive
    kernels: tuple[Stacked | Spread | Patched | Passed, ...]
    apart: tuple[int, ...] = ()


class Connected(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="connected", tag_field="kind"
):
    """A kernel of one fully connected layer, and softmax if it takes two operations (`panels`).

    Of up to `few` images it may work as is best for few.
    """

    operations: Positive
    few: Annotated[int, msgspec.Meta(ge=0)]


class Choice(Chosen, frozen=True, forbid_unknown_fields=True):
    """All kernels, for a generation of GPUs.

    Batches of up to `few_up_to` images have kernels of their own: the first of `few` that are for
    so many, or the last. Blocks, or the warps of a block, share long sums where images are few,
    unless they are told not to (`share_sums`). The poolings of the operations that are `apart` are
    operations of their own where images are many (`pooled_apart`); where -1 is, so is making words
    of pixels (`arriving`).
    """

    generation: str
    kernels: tuple[Stacked | Multiplied | Connected | Patched | Spread | Passed, ...]
    share_sums: bool = True
    few: tuple[Few, ...] = ()
    few_up_to: int = 0
    apart: tuple[int, ...] = ()
