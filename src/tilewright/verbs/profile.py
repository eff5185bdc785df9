"""`tilewright.profile`: kernels, copies and API calls of a run, layer by layer; or of two runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, overload

from tilewright.data.catalogue import Source
from tilewright.errors import TilewrightError
from tilewright.files import atomic_write
from tilewright.job import Request
from tilewright.model.load import Net, Weights, describe
from tilewright.profiling import compare as comparing
from tilewright.profiling import counting, saved, session, start
from tilewright.profiling.ceilings import measured_again
from tilewright.profiling.compare import Comparison
from tilewright.profiling.result import Profile, layers_of
from tilewright.profiling.session import Recording, Subject
from tilewright.results.comparison import ComparisonRecord
from tilewright.results.profile import ProfileRecord
from tilewright.rungs import OWN_SUFFIXES
from tilewright.runtime.device import Device
from tilewright.verbs.arguments import Progress, Tell, positive, quiet, telling
from tilewright.verbs.request import request
from tilewright.verbs.result import Result, Value, table_of

if TYPE_CHECKING:
    from rich.console import RenderableType

TABLES = ("wall", "layers", "kernels", "calls")


@dataclass(frozen=True, repr=False, eq=False)
class ProfileResult(Result[ProfileRecord]):
    """One recorded run: every kernel, copy and call, and where the wall time went.

    `from_start`: what the program did before the run is shown, too.
    """

    profile: Profile
    from_start: bool = False

    @property
    def headline(self) -> str:
        return f"{self.record.network} on {self.record.device}, rung {self.record.rung}"

    def report(self) -> Iterator[RenderableType]:
        from tilewright.views import profile as view

        return view.report(self.profile, self.from_start)

    def rows(self) -> list[dict[str, Value]]:
        """A row for each kernel, copy and call, and the layers it was for."""
        return table_of(self.record.detail)

    def to_csv(self) -> str:
        """The rows of the tables as CSV."""
        return saved.to_csv(self.profile)


@dataclass(frozen=True, repr=False, eq=False)
class ComparisonResult(Result[ComparisonRecord]):
    """Two recorded runs side by side: what moved, kernel by kernel and layer by layer."""

    comparison: Comparison

    @property
    def headline(self) -> str:
        return f"{self.record.before.rung} against {self.record.after.rung}"

    def report(self) -> Iterator[RenderableType]:
        from tilewright.views import comparison as view

        return view.report(self.comparison)

    def rows(self) -> list[dict[str, Value]]:
        """A row for each thing that both have, and the table that it is of."""
        tables = {name: getattr(self.record, name) for name in TABLES}
        named = [name for name, changes in tables.items() for _ in changes]
        rows = table_of(change for changes in tables.values() for change in changes)
        return [{"table": name, **row} for name, row in zip(named, rows, strict=True)]

    def to_csv(self) -> str:
        """The rows of the tables as CSV."""
        from tilewright.views.comparison import to_csv

        return to_csv(self.comparison)


class Stopped(TilewrightError):
    """A fault of the device cut the run short; `result` has what was recorded until then."""

    def __init__(self, result: ProfileResult) -> None:
        self.result, found = result, result.record
        super().__init__(f"rung {found.rung} on {found.device}: {found.stopped}")


class Interrupted(KeyboardInterrupt):
    """Ctrl-C cut the run short; `result` has what was recorded until then."""

    def __init__(self, result: ProfileResult) -> None:
        self.result = result
        super().__init__(result.record.stopped)


# A rung, a kernel file, a profile saved as JSON, or one that was made before.
Side = str | Path | ProfileResult


@overload
def profile(
    net: Net = ...,
    *,
    weights: Weights | None = ...,
    data: Source | None = ...,
    images: int | None = ...,
    batch: int | None = ...,
    device: str | Device | None = ...,
    rung: str | Path | None = ...,
    memory: str | None = ...,
    precision: str | None = ...,
    check: bool = ...,
    plan: str | Path | None = ...,
    repeats: int = ...,
    compare: None = ...,
    trace: str | Path | None = ...,
    from_start: bool = ...,
    counters: bool = ...,
    progress: Progress = ...,
) -> ProfileResult: ...


@overload
def profile(
    net: Net = ...,
    *,
    weights: Weights | None = ...,
    data: Source | None = ...,
    images: int | None = ...,
    batch: int | None = ...,
    device: str | Device | None = ...,
    memory: str | None = ...,
    precision: str | None = ...,
    check: bool = ...,
    repeats: int = ...,
    compare: Sequence[Side],
    progress: Progress = ...,
) -> ComparisonResult: ...


@quiet
def profile(
    net: Net = "ece408",
    *,
    weights: Weights | None = None,
    data: Source | None = None,
    images: int | None = None,
    batch: int | None = None,
    device: str | Device | None = None,
    rung: str | Path | None = None,
    memory: str | None = None,
    precision: str | None = None,
    check: bool = False,
    plan: str | Path | None = None,
    repeats: int = 6,
    compare: Sequence[Side] | None = None,
    trace: str | Path | None = None,
    from_start: bool = False,
    counters: bool = False,
    progress: Progress = False,
) -> ProfileResult | ComparisonResult:
    """Profile a run: kernels, copies and API calls, layer by layer, and where the wall time went.

    What to run is said as for `run`. `repeats` runs are timed without recording, to say how much
    recording slows things down. `compare` gives two rungs, saved profiles or results of this
    function, which are put side by side. `trace` is a file for a timeline that Perfetto opens.
    `from_start` shows what the program did before the run, too. `counters` has NVIDIA's ncu read
    the GPU's own counters.
    """
    asked = request(net, weights, data, images, batch, device, rung, memory, precision, check, plan)
    rounds = positive("repeats", repeats)
    with telling(progress) as tell:
        if compare is not None:
            alone = (
                *(("rung", rung), ("plan", plan), ("trace", trace)),
                *(("from-start", from_start or None), ("counters", counters or None)),
            )
            for option, value in alone:
                if value is not None:
                    raise TilewrightError(f"--{option} is of one run, and --compare is about two")
            return _compared(asked, compare, rounds, tell)
        begun = None
        if from_start:
            tell("recording the start, in a process of its own", 0, 1)
            begun = start.recorded(asked)
        subject = session.prepare(asked, rounds, tell)
        recording = _recorded(subject, None if trace is None else Path(trace), tell)
        made = measured_again(recording.profile)
        if begun is not None:
            made = start.with_start(made, begun)
        if counters:
            tell("reading the GPU's counters with ncu", 0, 1)
            found, why = counting.counted(asked, subject.ready.plan.device)
            made = replace(made, counters=found, uncounted=why)
        recording = replace(recording, profile=made)
        return _whole(recording, from_start)


def _recorded(subject: Subject, trace: Path | None, tell: Tell) -> Recording:
    if trace is None:
        return session.record(subject, tell)
    from tilewright.views.timeline import Timeline

    with atomic_write(trace) as file:
        timeline = Timeline(file, trace, subject.ceilings.device)
        recording = session.record(subject, tell, timeline)
        timeline.finish()
    return recording


def _whole(recording: Recording, from_start: bool = False) -> ProfileResult:
    """What was recorded, or an error that has it if the run was cut short."""
    result = ProfileResult(saved.record(recording.profile), recording.profile, from_start)
    if isinstance(recording.error, KeyboardInterrupt):
        raise Interrupted(result) from recording.error
    if recording.error is not None:
        raise Stopped(result) from recording.error
    return result


def _compared(asked: Request, compare: Sequence[Side], rounds: int, tell: Tell) -> ComparisonResult:
    if isinstance(compare, str) or not isinstance(compare, Sequence) or len(compare) != 2:
        raise TilewrightError(f"argument compare: two are compared, not {compare!r:.60}")
    sides = [_known(side) for side in compare]
    rungs = [str(name) for name, side in zip(compare, sides, strict=True) if side is None]
    for side in sides:
        if side is not None and rungs:  # rather refuse it now than after minutes
            network = describe(asked.net)
            comparing.check(side, layers_of(network), network.name)
    # All is timed before anything is recorded: what records a device stays in the process.
    requests = [replace(asked, rung=name) for name in rungs]
    subjects = iter(session.prepare_all(requests, rounds, tell))
    before, after = (
        _whole(session.record(next(subjects), tell)).profile if side is None else side
        for side in sides
    )
    found = comparing.compare(before, after)
    return ComparisonResult(comparing.record(found), found)


def _known(side: Side) -> Profile | None:
    """A profile that was made before; None of a rung, which kernel files are too."""
    if isinstance(side, ProfileResult):
        return side.profile
    name = str(side)
    if name.endswith(OWN_SUFFIXES) or not (name.endswith(".json") or Path(name).is_file()):
        return None
    return saved.read(Path(name))
