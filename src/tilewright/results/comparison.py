"""Two profiles side by side, as `tilewright profile --compare A B --json` writes them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from tilewright.results.record import Count, Seconds, about


class Side(Struct, frozen=True, kw_only=True):
    """One of the two profiles."""

    network: str
    rung: str
    device: str
    device_name: str
    memory: str
    images: Count
    batch: Count
    stopped: Annotated[str | None, about("why it was cut short")]
    dropped: Annotated[Count, about("records that were lost")]
    notices: tuple[str, ...]


class Change(Struct, frozen=True, kw_only=True):
    """One thing in both profiles; 0 where it is not in one."""

    name: str
    before: Seconds
    after: Seconds
    change: Annotated[float, about("after less before")]
    calls_before: Count
    calls_after: Count


class ComparisonRecord(
    Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright.comparison/1"
):
    """What moved between two profiles, what changed most first. All times are in seconds."""

    per_image: Annotated[
        bool, about("the two ran over different numbers of images: times are those of one image")
    ]
    before: Side
    after: Side
    wall: tuple[Change, ...]
    layers: Annotated[tuple[Change, ...], about("kernels and copies of each layer")]
    kernels: Annotated[tuple[Change, ...], about("kernels and copies by name")]
    calls: Annotated[tuple[Change, ...], about("API calls by name")]
