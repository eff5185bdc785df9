"""All kinds of records, by the verb that makes them."""

from __future__ import annotations

from tilewright.results.bench import BenchRecord
from tilewright.results.grade import GradeRecord
from tilewright.results.ladder import LadderRecord
from tilewright.results.profile import ProfileRecord
from tilewright.results.record import Record
from tilewright.results.run import RunRecord
from tilewright.results.tune import TuneRecord

KINDS: tuple[type[Record], ...] = (
    RunRecord,
    LadderRecord,
    ProfileRecord,
    BenchRecord,
    GradeRecord,
    TuneRecord,
)
RECORDS = {kind.verb(): kind for kind in KINDS}
