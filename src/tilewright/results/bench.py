"""The record of a contest: `tilewright kernel bench --json` writes it, the history keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Struct

from tilewright.measure.samples import Sample
from tilewright.results.ladder import ConditionsRecord
from tilewright.results.record import Count, Rate, Record, Seconds, Share, about, an_image

# The course looks at correctness for so many images.
COURSE_SIZES = (100, 1000, 10_000)


class ConvolutionTimes(Struct, frozen=True, kw_only=True):
    """One convolution, every round; with its own data in the caches, and with other data."""

    warm_seconds: tuple[Seconds, ...]
    cold_seconds: tuple[Seconds, ...]
    fingerprints: Annotated[tuple[str, ...], about("of the outputs of every timed call")]


class KernelRecord(Struct, frozen=True, kw_only=True):
    """Who took part, and what came out."""

    name: str
    judged: Annotated[bool, about("false for what it is compared with")]
    library: Annotated[bool, about("whether it ran in the judge's own process")]
    device: str
    precision: str
    refused: Annotated[str | None, about("why it has no place")]
    rank: Annotated[int | None, about("among those of its precision, libraries left out; from 1")]
    worst_share_of_bound: Annotated[
        float | None, about("the largest error seen as a share of what rounding allows")
    ]
    trials: Count | None
    seed: Annotated[int | None, about("repeats the proof")]
    share_of_library: Annotated[float | None, about("the library's time over the kernel's")]
    share_of_peak: Annotated[float | None, about("of the measured peak, in float32")]
    share_of_memory: Annotated[
        float | None, about("the fewest bytes it can move, of what the memory moves in that time")
    ]
    correct: Annotated[dict[str, Share], about("right answers, by how many images there were")]
    convolutions: dict[str, ConvolutionTimes]
    against: Annotated[str | None, about("whom it changes, if that one took part")] = None

    @property
    def rounds(self) -> tuple[float, ...]:
        """All convolutions together, warm, round by round."""
        times = [each.warm_seconds for each in self.convolutions.values()]
        return tuple(map(sum, zip(*times, strict=True)))

    @property
    def cold_rounds(self) -> tuple[float, ...]:
        times = [each.cold_seconds for each in self.convolutions.values()]
        return tuple(map(sum, zip(*times, strict=True)))

    @property
    def seconds(self) -> float:
        """All convolutions, warm: what ranks go by."""
        return sum(Sample(each.warm_seconds).median for each in self.convolutions.values())


class BenchRecord(Record, frozen=True, kw_only=True, tag="tilewright.bench/1"):
    """Kernels proven and timed among rungs. All times are in seconds, of one call over a batch."""

    weights: Annotated[str, about("trained or random, in words")]
    data: Annotated[str, about("what was read, in words")]
    images: Annotated[Count, about("whose answers were looked at")]
    batch: Annotated[Count, about("images in a call")]
    order_seed: Annotated[int, about("what the order of the turns was drawn from")]
    overhead_seconds: Annotated[Seconds, about("of asking a worker: it is in every time")]
    peak_flops: Annotated[Rate | None, about("a second, measured, in float32")]
    peak_bytes: Annotated[Rate | None, about("a second, measured")]
    notices: tuple[str, ...]
    conditions: ConditionsRecord
    kernels: tuple[KernelRecord, ...]
    unreadable: Annotated[dict[str, str], about("files that are no kernels, with the reason")]

    @property
    def ranked(self) -> list[KernelRecord]:
        """Those that have a place, fastest first."""
        timed = (each for each in self.kernels if not each.refused)
        return sorted(timed, key=lambda each: each.seconds)

    @property
    def headline(self) -> str:
        """The best of the kernels that were judged."""
        ranked = [(each.rank, each.name) for each in self.kernels if each.judged and each.rank]
        if not ranked:
            return "every kernel was refused"
        rank, name = min(ranked)
        places = max(each.rank or 0 for each in self.kernels)
        return f"{name}: {rank} of {places}"

    @property
    def rungs(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.kernels if not each.refused)

    @property
    def timings(self) -> Mapping[str, Sample]:
        timed = [each for each in self.kernels if each.rounds]
        return {each.name: an_image(each.rounds, self.batch) for each in timed}

    @property
    def untimed(self) -> Mapping[str, str]:
        refused = {each.name: each.refused for each in self.kernels if each.refused}
        return {**self.unreadable, **refused}

    @property
    def settings(self) -> Mapping[str, object]:
        return {"batch": self.batch, "weights": self.weights}

    @property
    def disturbance(self) -> float:
        # A GPU has its own processors.
        return 0.0 if self.device.startswith("cuda") else self.conditions.busy

    @property
    def notes(self) -> tuple[str, ...]:
        return self.conditions.notes
