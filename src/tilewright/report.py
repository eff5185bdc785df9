"""What a report needs that is not there yet: measured part by part, each kept when it is done.

Parts lie in a folder beside the page until the page is written: a report that was stopped goes on
where it was. Everything is timed before anything is recorded, for what records a device stays in
the process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from tilewright import __version__, climb, environment, job
from tilewright.answers import answers
from tilewright.contest import Progress
from tilewright.errors import TilewrightError
from tilewright.files import atomic_write, file_name
from tilewright.measure.samples import Rounds
from tilewright.memory import DEVICE_PLANS
from tilewright.profiling import saved, session
from tilewright.profiling.ceilings import measured_again
from tilewright.results import climbed, page
from tilewright.results import run as run_record
from tilewright.results.ladder import LadderRecord
from tilewright.results.page import KernelsRecord, Span, TimelineRecord
from tilewright.results.profile import ProfileRecord
from tilewright.results.record import Record
from tilewright.rungs import choose
from tilewright.runtime.device import CPU, Device
from tilewright.trace import Event

PROFILE_REPEATS = 6
# Events of a timeline: enough for the beginning of a run, few enough for a page.
MOST_SPANS = 800


@dataclass(frozen=True)
class Wish:
    """What to measure; as `job.Request`, for all rungs of a device."""

    net: str = "ece408"
    weights: Path | None = None
    data: str | None = None
    images: int = 100
    batch: int = 100
    device: Device = CPU
    repeats: int | None = None

    @property
    def digest(self) -> str:
        """Another wish, or another version, has other parts."""
        words = repr((__version__, *(str(value) for value in asdict(self).values())))
        return hashlib.sha256(words.encode()).hexdigest()[:12]


@dataclass
class Parts:
    """Records that were measured, in a folder of their own. `problems` are parts without any."""

    folder: Path
    done: Callable[[str], None] = lambda name: None
    problems: dict[str, str] = field(default_factory=dict)

    def get(self, wish: Wish, name: str) -> tuple[Record, ...] | None:
        path = self._path(wish, name)
        return page.read(path) if path.exists() else None

    def put(self, wish: Wish, name: str, records: Sequence[Record]) -> tuple[Record, ...]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(self._path(wish, name)) as file:
            file.write(page.text(records).encode())
        self.done(f"{wish.net} on {wish.device}: {name}")
        return tuple(records)

    def part(
        self, wish: Wish, name: str, make: Callable[[], Sequence[Record]]
    ) -> tuple[Record, ...]:
        """A part that is kept, or is made now; what cannot be had is a problem, and no end."""
        if (found := self.get(wish, name)) is not None:
            return found
        try:
            return self.put(wish, name, make())
        except TilewrightError as error:
            self.problems[f"{wish.net}, {name}"] = str(error)
            return ()

    def remove(self) -> None:
        """All parts, when the page has them."""
        if self.folder.is_dir():
            for path in self.folder.glob("*.json"):
                path.unlink()
            for path in self.folder.glob("*.npz"):
                path.unlink()
            if not any(self.folder.iterdir()):
                self.folder.rmdir()

    def _path(self, wish: Wish, name: str) -> Path:
        return self.folder / f"{wish.digest}-{file_name(name)}.json"


def collect(wishes: Sequence[Wish], parts: Parts, progress: Progress) -> list[Record]:
    """All records of a page; a ladder that cannot be climbed is an error."""
    records: list[Record] = []
    measured = []
    for wish in wishes:
        found = parts.get(wish, "ladder") or parts.put(wish, "ladder", [_ladder(wish, progress)])
        (ladder,) = (each for each in found if isinstance(each, LadderRecord))
        fed = _with_data(wish, parts)
        measured.append((fed, ladder))
        records.append(ladder)
        for label in (row.rung for row, _ in ladder.timed):
            records += parts.part(fed, f"run {label}", partial(_run, fed, label, progress))
        records += parts.part(fed, "answers", partial(_answers, fed, _best(ladder), progress))
        for row, _ in ladder.timed:
            if not row.vendor and fed.device.is_gpu:
                make = partial(_kernels, fed, row.rung, progress)
                records += parts.part(fed, f"kernels {row.rung}", make)
    for wish, ladder in measured:
        records += _profiles(wish, ladder, parts, progress)
    return records


def _ladder(wish: Wish, progress: Progress) -> LadderRecord:
    subject = climb.prepare(wish.net, _path(wish), wish.data, wish.images, or_all=True)
    found = climb.climb(
        subject.network, subject.dataset.images, wish.device, wish.batch,
        wish.repeats or Rounds(), progress=progress,
    )  # fmt: skip
    return climbed.record(found, subject, wish.device, wish.batch, None, environment.fingerprint())


def _path(wish: Wish) -> str | None:
    return None if wish.weights is None else str(wish.weights)


def _with_data(wish: Wish, parts: Parts) -> Wish:
    """The wish with the images that the ladder was measured on: random ones go into a file."""
    if wish.data is not None:
        return wish
    dataset = climb.prepare(wish.net, _path(wish), None, wish.images, or_all=True).dataset
    if dataset.labels is not None:
        return wish
    parts.folder.mkdir(parents=True, exist_ok=True)
    pixels = parts.folder / "random-pixels-{}.npz".format("x".join(map(str, dataset.images.shape)))
    with atomic_write(pixels) as file:
        np.savez(file, images=dataset.images)
    return replace(wish, data=str(pixels))


def _best(ladder: LadderRecord) -> str:
    """The fastest rung of our own, or of anyone."""
    return min(ladder.timed, key=lambda pair: (pair[0].vendor, pair[1].median_seconds))[0].rung


def _request(wish: Wish, label: str, memory: str | None = None) -> job.Request:
    rung, _, precision = label.partition(" ")
    return job.Request(
        net=wish.net, weights=wish.weights, data=wish.data, images=wish.images, batch=wish.batch,
        device=wish.device, rung=rung, precision=precision or None, memory=memory,
    )  # fmt: skip


def _run(wish: Wish, label: str, progress: Progress) -> list[Record]:
    result = job.run(_request(wish, label), partial(progress, f"running {label}"))
    return [run_record.record(result)]


def _answers(wish: Wish, label: str, progress: Progress) -> list[Record]:
    request = replace(_request(wish, label), images=None)
    found = answers(job.run(request, partial(progress, f"asking {label}")))
    return [] if found is None else [found]


def _kernels(wish: Wish, label: str, progress: Progress) -> list[KernelsRecord]:
    from tilewright.compiled import compiled

    progress(f"compiling {label}", 0, 1)
    rung, _, precision = label.partition(" ")
    found = compiled(
        choose(wish.device, rung, precision or None), wish.net, wish.device, wish.batch
    )
    return [] if found is None else [found]


def _profiles(
    wish: Wish, ladder: LadderRecord, parts: Parts, progress: Progress
) -> Iterator[Record]:
    """Every rung of our own; and the first of them under every memory plan, on a GPU."""
    own = [row.rung for row, _ in ladder.timed if not row.vendor]
    names: dict[str, tuple[str, str | None]] = {f"profile {label}": (label, None) for label in own}
    if wish.device.is_gpu:
        for label in own[:1]:
            for memory in choose(wish.device, label.partition(" ")[0]).memories:
                if memory != DEVICE_PLANS[0]:
                    names[f"profile {label} {memory}"] = (label, memory)
    shown = {f"profile {own[0]}", f"profile {_best(ladder)}"} if own else set()
    shown |= {name for name, (_, memory) in names.items() if memory}
    missing = [name for name in names if parts.get(wish, name) is None]
    subjects = {}
    for name in missing:
        try:
            request = _request(wish, *names[name])
            subjects[name] = session.prepare(request, PROFILE_REPEATS, progress)
        except TilewrightError as error:
            parts.problems[f"{wish.net}, {name}"] = str(error)
    for name in names:
        if name in subjects:
            make = partial(_profile, subjects.pop(name), name in shown, progress)
            yield from parts.part(wish, name, make)
        else:
            yield from parts.get(wish, name) or ()


def _profile(subject: session.Subject, shown: bool, progress: Progress) -> list[Record]:
    spans: list[Event] = []
    recording = session.record(subject, progress, spans.append if shown else None)
    if recording.error is not None:
        raise recording.error
    record = saved.record(measured_again(recording.profile))
    return [record, *([timeline(record, spans)] if spans else [])]


def timeline(of: ProfileRecord, events: Sequence[Event]) -> TimelineRecord:
    """The beginning of what was recorded."""
    kept = sorted(events, key=lambda event: event.start)[:MOST_SPANS]
    return TimelineRecord(
        network=of.network, device=of.device, device_name=of.device_name,
        environment=of.environment, rung=of.rung, memory=of.memory, images=of.images,
        batch=of.batch, left_out=len(events) - len(kept),
        spans=tuple(
            Span(kind=event.kind, name=event.name, lane=event.lane, start=event.start,
                 end=max(event.start, event.end), layers=event.layers)
            for event in kept
        ),
    )  # fmt: skip
