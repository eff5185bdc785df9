"""What a diagnosis is made of, and the words for what can be wrong: one word, one cause."""

from __future__ import annotations

from dataclasses import dataclass

RACE = "race"
OUTSIDE = "writes outside"
CHANGES_INPUT = "changes its input"
CHANGES_PARAMETERS = "changes its weights"
NEVER_WRITTEN = "never written"
ACCUMULATES = "adds to old output"
READS_OUTSIDE = "reads outside"
READS_UNWRITTEN = "reads what nothing wrote"
SWALLOWS = "swallows NaN"
NOT_A_NUMBER = "makes NaN"
STALE = "result of an earlier call"
IMAGES = "images mixed up"
FILTERS = "filters mixed up"
CHANNELS = "channels mixed up"
CHANNEL_MISSING = "input channel left out"
TAP_MISSING = "tap left out"
BIAS = "bias forgotten"
BIAS_TWICE = "bias added twice"
BIAS_OTHER = "bias of another filter"
FLIPPED = "kernel flipped"
TRANSPOSED = "y and x swapped"
STRIDE = "stride"
PADDING = "padding"
BORDER_TEST = "border not tested"
BORDER = "border"
LAST_TILE = "last tile"
TILE_EDGE = "edge of a tile"
LATER_IMAGES = "later images only"
ROW_LENGTH = "length of a row"
NO_SUM = "nothing summed"
ACTIVATION = "activation applied"
SIGN = "sign"
FACTOR = "constant factor"
PRECISION = "precision"
PLACES = "where"
EVERYWHERE = "everywhere"
UNKNOWN = "no known pattern"


@dataclass(frozen=True)
class Reason:
    """A cause in a word, and what speaks for it in a sentence.

    `certain`: it was computed, or seen, and explains all outputs; else it is where the wrong ones
    lie, or explains these alone.
    """

    word: str
    text: str
    certain: bool = True


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong, as a teacher would say it: the likeliest reason first."""

    headline: str
    first: str
    reasons: tuple[Reason, ...]
    picture: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(reason.word for reason in self.reasons)
