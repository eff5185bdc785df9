"""What a page is made from: records, and the author's words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from tilewright.results.ladder import LadderRecord, RungRecord
from tilewright.results.page import TimelineRecord
from tilewright.results.profile import ProfileRecord
from tilewright.results.record import Record
from tilewright.views.report.blocks import Words

Kind = TypeVar("Kind", bound=Record)


@dataclass(frozen=True)
class Material:
    """`words` are Markdown by the places that they belong to."""

    records: tuple[Record, ...]
    words: Mapping[str, str] = field(default_factory=dict)

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [record for record in self.records if isinstance(record, kind)]

    def by_subject(self, kind: type[Kind]) -> Iterator[tuple[str, list[Kind]]]:
        """Records of the same network on the same device, under a title."""
        found: dict[str, list[Kind]] = {}
        for record in self.of(kind):
            found.setdefault(subject(record), []).append(record)
        yield from found.items()

    def words_for(self, place: str) -> Words:
        return Words(place, self.words.get(place, ""))

    @property
    def ladders(self) -> list[LadderRecord]:
        return self.of(LadderRecord)


def subject(record: Record) -> str:
    return f"{record.network} on {record.device} ({record.device_name})"


def row_name(row: RungRecord) -> str:
    """A rung on a ladder, where each may be there under several memory plans."""
    return row.rung if row.memory is None else f"{row.rung}, {row.memory}"


def profile_name(profile: ProfileRecord | TimelineRecord) -> str:
    """A profile among others of the same network and device."""
    memory = "" if profile.memory == "host" else f", {profile.memory}"
    return f"{profile.rung}{memory}"
