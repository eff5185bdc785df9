"""One part of a report at a time: a run, a profile, answers. Each is done in its own process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tilewright import job
from tilewright.command import commanded
from tilewright.contest import Progress
from tilewright.plan_file import document
from tilewright.profiling import counting, saved, session, start
from tilewright.profiling.ceilings import measured_again
from tilewright.reporting.answers import SHOWN, answers
from tilewright.reporting.wish import Wish
from tilewright.results import run as run_record
from tilewright.results.page import PlanRecord, Span, TimelineRecord
from tilewright.results.profile import ProfileRecord
from tilewright.results.record import Record
from tilewright.rungs import choose
from tilewright.trace import Event

PROFILE_REPEATS = 6
# Events of a timeline: enough for the beginning of a run, few enough for a page.
MOST_SPANS = 800


def run(wish: Wish, label: str, images: int, *, progress: Progress) -> list[Record]:
    """A run; with its plan as a file would hold it, which is the same for any number of images."""
    words = wish.command("run", label, images)
    with commanded(words[1:]):
        result = job.run(wish.request(label, images), partial(progress, f"running {label}"))
    found = run_record.record(result)
    if images != wish.images:
        return [found]
    plan = PlanRecord(
        network=found.network, device=found.device, device_name=found.device_name,
        environment=found.environment, rung=found.label,
        plan=document(result.plan, result.network).decode(),
    )  # fmt: skip
    return [found, plan]


def answered(wish: Wish, label: str, *, progress: Progress) -> list[Record]:
    """What a rung answers to all images; nothing where nobody knows what would be right."""
    words = (*wish.command("run", label), "--show", str(SHOWN))
    with commanded(words[1:]):
        result = job.run(wish.request(label, None), partial(progress, f"asking {label}"))
    found = answers(result)
    return [] if found is None else [found]


def kernels(wish: Wish, label: str, *, progress: Progress) -> list[Record]:
    """The kernels of a rung as the compiler made them."""
    from tilewright.reporting.compiled import compiled

    progress(f"compiling {label}", 0, 1)
    rung, _, precision = label.partition(" ")
    chosen = choose(wish.device, rung, precision or None)
    with commanded(wish.command("explain", label)[1:]):
        found = compiled(chosen, wish.net, wish.device, wish.batch)
    return [] if found is None else [found]


def profile(
    wish: Wish,
    label: str,
    memory: str | None,
    shown: bool,
    counted: bool,
    begun: bool,
    *,
    progress: Progress,
) -> list[Record]:
    """A recorded run; with its timeline, if that is to be shown, the GPU's counters, and the calls
    of its start.
    """
    words = (*wish.command("profile", label, wish.images, memory), "--from-start")
    words += ("--counters",) if counted else ()
    spans: list[Event] = []
    with commanded(words[1:]):
        request = wish.request(label, wish.images, memory)
        subject = session.prepare(request, PROFILE_REPEATS, progress)
        recording = session.record(subject, progress, spans.append if shown else None)
    if recording.error is not None:
        raise recording.error
    made = measured_again(recording.profile)
    if begun:
        progress(f"recording the start of {label}", 0, 1)
        made = start.with_start(made, start.recorded(request))
    if counted:
        progress(f"reading counters of {label}", 0, 1)
        found, why = counting.counted(request, wish.device)
        made = replace(made, counters=found, uncounted=why)
    record = saved.record(made)
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
