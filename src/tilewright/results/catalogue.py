"""All kinds of records, by the verb that makes them."""

from __future__ import annotations

from tilewright.results.ladder import LadderRecord
from tilewright.results.profile import ProfileRecord
from tilewright.results.record import Record
from tilewright.results.run import RunRecord

RECORDS: dict[str, type[Record]] = {
    "run": RunRecord,
    "ladder": LadderRecord,
    "profile": ProfileRecord,
}
