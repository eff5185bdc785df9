"""What a rung does with a network, as `tilewright explain --json` writes it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from tilewright.results.record import Count, Environment, Operations, Rate, Seconds, Share, about

Sizes = tuple[Count, Count, Count]


class PieceRecord(Struct, frozen=True, kw_only=True):
    """A kernel, or a group of layers in the one that `fused` makes. What is not known is null."""

    layers: tuple[str, ...]
    kernel: Annotated[str | None, about("its name; null of a group of layers")] = None
    problem: Annotated[str | None, about("why there is none")] = None
    tile: Annotated[str | None, about("of registers, in words")] = None
    images: Annotated[Count, about("of a launch, or of a run")] = 0
    grid: Sizes | None = None
    block: Sizes | None = None
    registers: Annotated[Count | None, about("of a thread")] = None
    spilled_bytes: Annotated[Count | None, about("of a thread")] = None
    shared_bytes: Annotated[Count | None, about("of a block")] = None
    constant_bytes: Count | None = None
    occupancy: Share | None = None
    flop: Annotated[Count | None, about("over these images, every tap counted")] = None
    executed_flop: Annotated[Count | None, about("without taps that are left out")] = None
    loads: Annotated[Operations | None, about("of its threads")] = None
    bytes: Annotated[Count | None, about("every buffer once")] = None
    issued_bytes: Annotated[float | None, about("what threads ask of device memory")] = None
    limit: Annotated[str | None, about("what holds it up, in words")] = None
    seconds: Annotated[
        Seconds | None, about("measured of a group; of a kernel at best, by what limits it")
    ] = None


class ExplainRecord(
    Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright.explain/1"
):
    """A rung and a network. All times are in seconds, all sizes in bytes."""

    network: str
    rung: Annotated[str, about("with its precision, if it has a choice of them")]
    idea: Annotated[str, about("what it changes, in one sentence")]
    target: Annotated[str, about("what it was explained for, in words")]
    batch: Annotated[Count | None, about("images at a time; null where any take the same")]
    peak_flops: Annotated[Rate | None, about("a second, measured, in float32")]
    pieces: tuple[PieceRecord, ...]
    code: Annotated[str | None, about("source or machine code, if that was asked for")]
    environment: Environment
