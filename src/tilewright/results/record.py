"""What every record has, and the kinds of numbers in records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from tilewright.measure.samples import Sample

if TYPE_CHECKING:
    from tilewright.truth.verify import Verdict


def about(words: str) -> Meta:
    """What a field means: its description in the schema."""
    return Meta(description=words)


# Beyond anything real, and sums of them are finite.
LONGEST_SECONDS, FASTEST, MOST_OPERATIONS, MOST = 1e9, 1e20, 1e29, 2**63 - 1
Seconds = Annotated[float, Meta(ge=0, le=LONGEST_SECONDS)]
Rate = Annotated[float, Meta(ge=0, le=FASTEST)]
Operations = Annotated[float, Meta(ge=0, le=MOST_OPERATIONS)]
Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=0, le=MOST)]


class Gpu(Struct, frozen=True):
    """An NVIDIA GPU, as the driver's own tool describes it."""

    name: str
    driver: str
    memory: str


class Environment(Struct, frozen=True, kw_only=True):
    """Everything about a machine that a figure may depend on."""

    tilewright: Annotated[str, about("the version")]
    date: Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
    command: tuple[str, ...]
    cpu: str
    cores: Annotated[int, Meta(ge=1, le=MOST)]
    memory_bytes: Count
    gpus: tuple[Gpu, ...]
    system: str
    python: str
    libraries: dict[str, str]

    @property
    def machine(self) -> str:
        """The hardware, in a few words."""
        gpus = "".join(f", {gpu.name}" for gpu in self.gpus)
        return f"{self.cpu}, {self.cores} {'core' if self.cores == 1 else 'cores'}{gpus}"


class Timing(Struct, frozen=True, kw_only=True):
    """A sample of repeats over all images."""

    median_seconds: Seconds
    best_seconds: Seconds
    interval_seconds: Annotated[
        tuple[float, float] | None,
        about("where the true median lies in 95 of 100 cases; null for fewer than 6 repeats"),
    ]
    noise: str
    images_per_second: Rate
    samples_seconds: tuple[Seconds, ...]

    @property
    def sample(self) -> Sample:
        return Sample(self.samples_seconds)


def timing(sample: Sample, images: int) -> Timing:
    ends = sample.interval.ends
    return Timing(
        median_seconds=sample.median,
        best_seconds=sample.best,
        interval_seconds=None if ends is None else (ends[0], ends[1]),
        noise=sample.verdict,
        images_per_second=images / sample.median,
        samples_seconds=sample.seconds,
    )


class Verification(Struct, frozen=True, kw_only=True):
    """What the proof of a rung found."""

    passed: bool
    seed: Annotated[int, about("repeats the proof")]
    trials: Count
    outputs: Count
    worst: Annotated[
        float | None, about("the largest error seen as a share of its bound; null if not finite")
    ]
    fault: str | None
    proven: Annotated[
        str | None,
        about("the day of a proof from before, on the same machine and of the same code"),
    ] = None


def verification(found: Verdict) -> Verification:
    return Verification(
        passed=found.passed,
        seed=found.seed,
        trials=found.trials,
        outputs=found.outputs,
        worst=found.worst if math.isfinite(found.worst) else None,
        fault=str(found.fault) if found.fault else None,
        proven=found.proven or None,
    )


class Record(Struct, frozen=True, kw_only=True, tag_field="schema"):
    """The base of all that is kept. All times are in seconds, all sizes in bytes."""

    network: Annotated[str, about("the network's name")]
    device: Annotated[str, about("as it was asked for: cpu, opencl, cuda:1")]
    device_name: Annotated[str, about("the device in words")]
    environment: Annotated[Environment, about("machine, system, libraries, date, command")]

    @classmethod
    def schema_id(cls) -> str:
        """Such as `tilewright.run/1`."""
        return str(cls.__struct_config__.tag)

    @classmethod
    def verb(cls) -> str:
        """What makes such records: `run` of `tilewright.run/1`."""
        return cls.schema_id().removeprefix("tilewright.").partition("/")[0]

    @property
    def headline(self) -> str:
        """What it came to, in a few words for a list."""
        return ""

    @property
    def rungs(self) -> tuple[str, ...]:
        """Those that took part."""
        return ()

    @property
    def timings(self) -> Mapping[str, Sample]:
        """Raw samples by what was timed, in seconds an image: compared with another record's."""
        return {}

    @property
    def untimed(self) -> Mapping[str, str]:
        """What should have been timed and was not, with the reason."""
        return {}

    @property
    def settings(self) -> Mapping[str, object]:
        """What was asked for that times depend on, beside network and device."""
        return {}

    @property
    def disturbance(self) -> float:
        """By what share times are less certain than their samples say."""
        return 0.0

    @property
    def notes(self) -> tuple[str, ...]:
        """What may have disturbed the figures."""
        return ()


def an_image(seconds: tuple[float, ...], images: int) -> Sample:
    return Sample(tuple(each / images for each in seconds))
