"""A profile as tables: what ran, which calls were made, where the time of every layer went."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rich.console import RenderableType

from tilewright.measure.samples import Sample
from tilewright.profiling import meaning
from tilewright.profiling.result import DEVICE_KINDS, Profile
from tilewright.profiling.roofline import Facts, roofline
from tilewright.profiling.start import RUN, with_run
from tilewright.profiling.tally import Row, by_name
from tilewright.profiling.wall import PARTS, PROFILER, WORDS
from tilewright.trace import MOVING
from tilewright.views import colours, counters, regions, units
from tilewright.views.counters import LONGEST
from tilewright.views.names import short
from tilewright.views.regions import layer_names
from tilewright.views.table import Column, Table, table

# "What takes 90 %": rows until they make up more than this share.
MOST = 0.90
BEYOND = 1.02  # a share of the peak that no measurement of it should allow


def report(profile: Profile, from_start: bool = False) -> Iterator[RenderableType]:
    """Everything a person wants to know, from top to bottom; `from_start`: of the program."""
    yield from _head(profile)
    if from_start:
        yield ""
        yield from _start(profile)
    yield ""
    yield _activities(profile)
    if calls := profile.named("api"):
        yield ""
        yield _calls(calls)
    if unified := profile.named("unified"):
        yield ""
        yield _unified(unified)
    if profile.page_faults is not None:
        yield f"page faults of the host in the recorded run: {units.count(profile.page_faults)}"
    yield ""
    yield from regions.report(profile)
    yield ""
    yield from _most(profile, from_start)
    yield ""
    yield from _wall(profile)
    yield ""
    yield from _roofline(profile)
    if profile.counters or profile.uncounted:
        yield ""
        yield from counters.report(profile)


def _head(profile: Profile) -> Iterator[RenderableType]:
    memory = "" if profile.memory == "host" else f", memory {profile.memory}"
    yield (
        f"{profile.network} over {images(profile)}, "
        f"rung {profile.rung} on {profile.device} ({profile.device_name}){memory}"
    )
    correct = "" if profile.accuracy is None else f"; correct {profile.accuracy:.4f}"
    yield f"{profile.data}{correct}"
    yield f"times are from {profile.source}"
    if profile.stopped:
        yield f"PARTIAL: {profile.stopped}; the tables have what was recorded until then"
    if profile.dropped:
        yield f"{units.count(profile.dropped)} records were dropped: counts and times are too low"
    for notice in profile.notices:
        yield f"note: {notice}"


def _start(profile: Profile) -> Iterator[RenderableType]:
    """All that the program did, so that a share of it can be given: context, modules, first
    allocations and all.
    """
    wall = Sample(profile.timed).median if profile.timed else profile.wall.seconds
    total = sum(seconds for _, seconds in profile.start) + wall
    rows = table("From the start of the program", "phase", ">time", "%share", "what is in it")
    for name, seconds in with_run(profile.start, wall):
        words = "without recording" if name == RUN else meaning.of_phase(name)
        rows.add_row(name, units.seconds(seconds), units.share(seconds / total), words)
    rows.add_section()
    rows.add_row("total", units.seconds(total), units.share(1), "")
    yield rows
    if not profile.start:
        yield "this profile was saved without its start"
    if calls := calls_from_start(profile):
        yield ""
        yield _times("API calls from the start of the program", calls, layers=False)
        yield "the start, and the end, were recorded in a process of their own, without the run"
    if any(row.phase for row in profile.start_rows):
        yield ""
        yield from regions.start(profile)


def calls_from_start(profile: Profile) -> list[Row]:
    """Those of the start and of the recorded run together, where both are known."""
    begun = [row for row in profile.start_rows if row.kind == "api"]
    return by_name([*begun, *profile.of("api")]) if begun else []


def images(profile: Profile) -> str:
    """How many, and how they went through."""
    size = min(profile.batch, profile.images)
    number = units.plural(profile.images, "image")
    return f"{number}, one by one" if size == 1 else f"{number}, {units.count(size)} at a time"


def _activities(profile: Profile) -> RenderableType:
    on_gpu = profile.device.is_gpu
    rows = profile.named(*DEVICE_KINDS)
    made = _times("GPU activities" if on_gpu else "Computation", rows, layers=True)
    if not rows:
        made.add_row("-", "-", "0", "-", "-", "-", "nothing was recorded", "")
    return made


def _calls(calls: list[Row]) -> RenderableType:
    return _times("API calls", calls, layers=False)


def _times(title: str, rows: list[Row], layers: bool) -> Table:
    made = table(
        title, "%Time(%)", ">Time", ">Calls", Column("Avg", "number", spare=1),
        Column("Min", "number", spare=2), Column("Max", "number", spare=2), "Name",
        *([Column("Layers", spare=3)] if layers else ()),
    )  # fmt: skip
    total = sum(row.seconds for row in rows) or 1.0
    for row in rows:
        cells = [
            units.share(row.seconds / total),
            units.seconds(row.seconds),
            units.count(row.calls),
            *map(units.seconds, (row.average, row.minimum, row.maximum)),
            short(row.name),
        ]
        made.add_row(*cells, *([layer_names(row.layers)] if layers else []))
    return made


def _unified(rows: list[Row]) -> RenderableType:
    made = table(
        "Unified memory", ">Count", Column("Avg Size", "number", spare=1),
        Column("Min Size", "number", spare=2), Column("Max Size", "number", spare=2), ">Total Size",
        ">Total Time", "Name",
    )  # fmt: skip
    for row in rows:
        moved = row.name in MOVING
        sizes = (row.bytes / row.calls, row.smallest, row.largest, row.bytes)
        made.add_row(
            units.count(row.calls),
            *(map(units.size, sizes) if moved else "----"),
            units.seconds(row.seconds) if row.seconds else "-",
            row.name if row.count == row.calls else f"{row.name} ({units.count(row.count)} faults)",
        )
    return made


def _most(profile: Profile, from_start: bool) -> Iterator[RenderableType]:
    parts: tuple[tuple[str, list[Row], Callable[[Row], str]], ...] = (
        ("kernels", profile.named("kernel"), lambda row: meaning.of_kernel(profile, row)),
        ("API calls", profile.named("api"), lambda row: meaning.of_call(row.name)),
        ("calls from the start", calls_from_start(profile) if from_start else [],
         lambda row: meaning.of_call(row.name)),
    )  # fmt: skip
    made = table(f"What takes {units.share(MOST)[:-4]} %", "%share", "of", "name", "what it is")
    first = True
    for title, rows, words in parts:
        if not rows:
            continue
        if not first:
            made.add_section()
        first = False
        total = sum(row.seconds for row in rows) or 1.0
        for row in most(rows):
            made.add_row(units.share(row.seconds / total), title, short(row.name), words(row))
    yield made


def most(rows: list[Row]) -> list[Row]:
    """The most expensive rows that together make up more than 90 % of the time."""
    total, found, so_far = sum(row.seconds for row in rows), [], 0.0
    for row in sorted(rows, key=lambda row: -row.seconds):
        if so_far > MOST * total:
            break
        found.append(row)
        so_far += row.seconds
    return found


def _wall(profile: Profile) -> Iterator[RenderableType]:
    wall = profile.wall
    made = table("Where the wall time went", "part", ">time", "%share", "what it is")
    for part in PARTS:
        seconds = wall.parts[part]
        if part == PROFILER and not seconds:
            continue
        share = units.share(seconds / wall.seconds) if wall.seconds else "-"
        made.add_row(part, units.seconds(seconds) if seconds else "-", share, WORDS[part])
    made.add_section()
    made.add_row("wall", units.seconds(wall.seconds), units.share(1), "of the recorded run")
    yield made
    if profile.slow_down is not None:
        sample = Sample(profile.timed)
        yield (
            f"\nThe same run without recording: {units.seconds(sample.median)}, the median of "
            f"{len(sample.seconds)} ({sample.verdict}); profiling made it "
            f"{units.digits(profile.slow_down)} times as long{_reading(profile)}."
        )


def _reading(profile: Profile) -> str:
    """How long a run it was without the reading of records, which is no part of it."""
    seconds = profile.wall.parts[PROFILER]
    if not seconds:
        return ""
    rest = (profile.wall.seconds - seconds) / Sample(profile.timed).median
    return f", {units.digits(rest)} times without the reading of its records"


def _roofline(profile: Profile) -> Iterator[RenderableType]:
    facts = roofline(profile)
    if not facts:
        yield "Roofline: no kernel's work is known"
        return
    made = table(
        "Roofline", "\nkernel", "\nlayers", ">\nGFLOP/s", ">of\npeak", ">\nGB/s",
        ">of band-\nwidth", ">FLOP a\nbyte", "\nwhat holds it up",
    )  # fmt: skip
    for each in facts[:LONGEST]:
        made.add_row(*_rates(each))
    yield made
    if len(facts) > LONGEST:
        yield f"and {len(facts) - LONGEST} more kernels, less expensive: --json has all"
    ceilings = profile.ceilings
    if any((each.flop_share or 0.0) > BEYOND for each in facts):
        yield (
            "more than the ceiling, which was measured again and did not come out higher: "
            "the kernel does fewer operations than are counted, or the machine is busy"
        )
    if profile.skips_taps:
        yield "GFLOP/s count every tap; the share of the peak is without those outside the image"
    if ceilings is not None and ceilings.flops and ceilings.bytes:
        yield (
            f"ceilings, measured {ceilings.date}: {units.digits(ceilings.flops / 1e9)} GFLOP/s in "
            f"{ceilings.precision}, {units.digits(ceilings.bytes / 1e9)} GB/s; from "
            f"{units.digits(ceilings.flops / ceilings.bytes)} FLOP a byte on, arithmetic is the "
            "limit. Bytes: every buffer once"
        )


def _rates(facts: Facts) -> Iterable[str]:
    return (
        short(facts.row.name),
        layer_names(facts.row.layers),
        units.digits(facts.flop_rate / 1e9) if facts.flops else "-",
        units.share(facts.flop_share) if facts.flops and facts.flop_share is not None else "-",
        units.digits(facts.byte_rate / 1e9),
        units.share(facts.byte_share) if facts.byte_share is not None else "-",
        units.digits(facts.intensity) if facts.flops and facts.intensity else "-",
        colours.limit(facts.limit),
    )
