"""The ladder as tables, from its record."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from tilewright.measure.samples import CONFIDENCE, FAIR, Ratio, Sample, ratio
from tilewright.results.ladder import (
    ALL,
    ALONE,
    TOGETHER,
    LadderRecord,
    LayerTiming,
    RungRecord,
)
from tilewright.results.record import Timing, Verification
from tilewright.views import units
from tilewright.views.bars import Bars
from tilewright.views.plan import span
from tilewright.views.table import Column, table

# More convolutions than this have a table of their own.
INLINE_CONVOLUTIONS = 3
SAME = "≈"  # before a ratio that cannot be told from 1
WILD = 0.99


def report(ladder: LadderRecord) -> Iterator[RenderableType]:
    """Everything a person wants to know of a ladder, from top to bottom."""
    yield (
        f"{ladder.network} on {ladder.device} ({ladder.device_name}): "
        f"{units.plural(ladder.images, 'image')}, {units.plural(ladder.repeats, 'round')} in turns "
        "after a warm-up"
    )
    yield f"{ladder.data}; {ladder.weights}\n"
    yield from tables(ladder)


def tables(ladder: LadderRecord) -> Iterator[RenderableType]:
    """The tables, and what is to be said about them."""
    timed = ladder.timed
    convolutions = list(timed[0][0].operations) if timed else []
    inline = convolutions if len(convolutions) <= INLINE_CONVOLUTIONS else []
    yield _times(ladder.rows, inline)
    if not inline and convolutions:
        yield ""
        yield _operations(ladder, convolutions)
    if ladder.memory == ALL and timed:
        yield ""
        yield _matrix(ladder)
        yield ""
        yield _page_faults(ladder)
    if timed:
        yield ""
        yield _speeds(ladder)
        yield ""
        yield _bars(ladder)
    if any(len(row.correctness) > 1 for row in ladder.rows):
        yield ""
        yield _correctness(ladder)
    yield ""
    yield from _notes(ladder)


def _times(ladder: Sequence[RungRecord], convolutions: list[str]) -> RenderableType:
    copied = any(row.copies for row in ladder)
    on_device = any(row.device_time for row in ladder)
    rows = table(
        "Rungs", "\nrung", Column("\nproof", "number", spare=1),
        *(Column(name, "number", unit="ms") for name in convolutions),
        *([Column("device", "number", unit="ms"), _uncertain("device")] if on_device else ()),
        *([Column("copies", "number", unit="ms")] if copied else ()),
        Column("total" if on_device else "network", "number", unit="ms"),
        _uncertain("total" if on_device else ""),
        *([Column("copied", "number", spare=3, unit="MB")] if copied else ()),
        Column("\ncorrect", "number", spare=1),
    )  # fmt: skip
    for row in ladder:
        if row.network is None:
            rows.add_row(row.rung, "not here" if row.missing else "WRONG")
            continue
        rows.add_row(
            row.rung + row.operations_mark,
            _proof(row.verification),
            *(units.milliseconds(row.operations[name].median_seconds) for name in convolutions),
            *([_milliseconds(row.device_time), _by(row.device_time)] if on_device else ()),
            *([_milliseconds(row.copies)] if copied else ()),
            units.milliseconds(row.network.median_seconds),
            _by(row.network),
            *([units.megabytes(row.copied_bytes) if row.copies else "-"] if copied else ()),
            units.fixed(row.correctness[-1].share, 4) if row.correctness else "-",
        )
    return rows


def _uncertain(of: str) -> Column:
    return Column(f"{of}\n± %", "number", spare=2)


def _by(time: Timing | None) -> str:
    """How uncertain a time is."""
    return "-" if time is None else percent(time.sample.uncertainty)


def _milliseconds(time: Timing | None) -> str:
    return "-" if time is None else units.milliseconds(time.median_seconds)


def _matrix(ladder: LadderRecord) -> RenderableType:
    """Every layer and every kind under every memory plan, as the thesis shows its variants."""
    timed = [row for row, _ in ladder.timed]
    names = _variants(timed, "ms")
    rows = table(f"Layer by layer, {units.count(ladder.images)} images", "layer", *names)
    layers = _pieces([row.layers for row in timed])
    kinds = list(dict.fromkeys(each.kind for row in timed for each in row.layers))
    for wanted in layers:
        found = ([each for each in row.layers if each.layers == wanted] for row in timed)
        rows.add_row(span(wanted), *map(_sum, found))
    rows.add_section()
    for kind in kinds:
        found = ([each for each in row.layers if each.kind == kind] for row in timed)
        rows.add_row(f"all {kind}", *map(_sum, found))
    rows.add_section()
    rows.add_row("copies", *(_milliseconds(row.copies) for row in timed))
    rows.add_row("total", *(_milliseconds(row.network) for row in timed))
    return rows


def _pieces(rungs: Sequence[Sequence[LayerTiming]]) -> list[tuple[str, ...]]:
    """What rungs compute at once, in the network's order: what is fused stands by its first layer.

    The rung that keeps most layers apart has the order of them.
    """
    known = (each.layers for rung in sorted(rungs, key=len, reverse=True) for each in rung)
    order = list(dict.fromkeys(name for names in known for name in names))
    found = {each.layers for rung in rungs for each in rung}
    return sorted(found, key=lambda names: (order.index(names[0]), len(names), names))


def _page_faults(ladder: LadderRecord) -> RenderableType:
    timed = [row for row, _ in ladder.timed]
    rows = table("Page faults of the host, a median round", "what", *_variants(timed))
    faults = (row.page_faults for row in timed)
    rows.add_row("page faults", *("-" if n is None else units.count(n) for n in faults))
    return rows


def _variants(timed: Sequence[RungRecord], unit: str = "") -> list[Column]:
    """A column for each rung and memory plan."""
    return [Column(row.rung.replace(", ", "\n"), "number", unit=unit) for row in timed]


def _sum(layers: list[LayerTiming]) -> str:
    seconds = sum(each.time.median_seconds for each in layers)
    return units.milliseconds(seconds) if layers else "-"


def _bars(ladder: LadderRecord) -> RenderableType:
    """The times that ranks go by."""
    times = [(row.rung, ranked.median_seconds) for row, ranked in ladder.ranked]
    of = "on the device" if any(row.device_time for row, _ in ladder.ranked) else "of the network"
    return Bars(f"Time {of}, {units.count(ladder.images)} images, logarithmic", tuple(times))


def _speeds(ladder: LadderRecord) -> RenderableType:
    timed = ladder.ranked
    (first, first_time), *_ = timed
    library, vendor = min(
        ((row, time.sample) for row, time in timed if row.vendor),
        key=lambda pair: pair[1].median, default=(None, None),
    )  # fmt: skip
    rows = table(
        "Speeds", "\nrung", ">\nimages/s", ">\nGFLOP/s", ">% of\npeak", ">\ntimes", ">\n± %",
        "\nthat of", f">times\n{first.rung}",
        *([f">times\n{library.rung}"] if library is not None else ()),
    )  # fmt: skip
    for row, time in timed:
        gain = row.against.ratio if row.against else None
        rows.add_row(
            row.rung,
            units.count(time.images_per_second),
            units.digits(time.images_per_second * ladder.flop_an_image / 1e9),
            units.digits(100 * row.peak_share) if row.peak_share is not None else "-",
            _perhaps(gain, units.times(gain.value)) if gain else "-",
            percent(gain.uncertainty) if gain else "-",
            row.against.rung if row.against else "",
            units.times(first_time.median_seconds / time.median_seconds),
            *([] if library is None or vendor is None
              else [_times_library(row, time.sample, library, vendor, ladder.doubt)]),
        )  # fmt: skip
    return rows


def _proof(found: Verification | None) -> str:
    if found is None or found.worst is None:
        return "-"
    return units.of_bound(found.worst)


def _before(rows: Sequence[RungRecord]) -> Iterator[str]:
    """Which proofs are of another day, by days."""
    days: dict[str, list[str]] = {}
    for row in rows:
        if row.verification is not None and row.verification.proven is not None:
            days.setdefault(row.verification.proven, []).append(row.rung)
    for day, names in days.items():
        every = len(names) == sum(row.verification is not None for row in rows)
        yield (
            f"proven {day} on this machine, and nothing has changed since: "
            f"{'every rung' if every else ', '.join(names)} (--prove proves them again)"
        )


def _times_library(
    row: RungRecord, sample: Sample, library: RungRecord, vendor: Sample, doubt: float
) -> str:
    """How many times as fast as the fastest library; nothing wins in a precision of its own."""
    if row.precision != library.precision:
        return "-"
    found = ratio(vendor, sample).doubted(doubt)
    text = units.times(found.value)
    return text if row is library else _perhaps(found, text)


def _perhaps(found: Ratio, text: units.Quantity) -> str:
    """Marked where the two may as well be the same; of too few rounds nothing is said."""
    told = found.differs or not math.isfinite(found.uncertainty)
    return text if told else units.Quantity(f"{SAME}{text}", text.value, text.unit)


def percent(share: float) -> str:
    """Of an uncertainty; beyond 99 % it hardly matters by how much."""
    if math.isinf(share):
        return "-"
    return units.digits(100 * share) if share < WILD else units.Quantity(">99", 100 * share)


def _correctness(ladder: LadderRecord) -> RenderableType:
    """The share of right predictions among the first images, as the course checks it."""
    shares: dict[tuple[units.Quantity, ...], list[str]] = {}
    sizes: list[int] = []
    for row in ladder.rows:
        if row.correctness:
            sizes = [each.images for each in row.correctness]
            found = tuple(units.fixed(each.share, 4) for each in row.correctness)
            shares.setdefault(found, []).append(row.rung)
    rows = table("Correctness", "images", *(f">{units.count(size)}" for size in sizes))
    for found, names in shares.items():
        rows.add_row("every rung" if len(shares) == 1 else ", ".join(names), *found)
    return rows


def _operations(ladder: LadderRecord, convolutions: list[str]) -> RenderableType:
    timed = [row for row, _ in ladder.timed]
    rows = table("Op times", "conv", *(f">{row.rung}" for row in timed))
    for name in convolutions:
        rows.add_row(name, *(units.seconds(row.operations[name].median_seconds) for row in timed))
    return rows


def _notes(ladder: LadderRecord) -> Iterator[RenderableType]:
    rows = ladder.rows
    peak = "not measured"
    if ladder.peak_flops:
        peak = f"measured, {units.digits(ladder.peak_flops / 1e9)} GFLOP/s"
    if any(row.device_time for row in rows):
        yield (
            "device: while the GPU computed; total: from pixels in the host's memory to results "
            "there, with what the host takes to launch and to wait; ranks, ratios and rates go by "
            "the device's time"
        )
        if ladder.device.startswith("cuda"):
            yield (
                "the device's time is that of events around each launch, a library's too: they "
                "add microseconds of their own, which `tilewright profile` does not"
            )
    if any(_more_than_all(row) for row in rows):
        yield (
            "the device's time and copies are of turns of their own, in which each kernel is "
            "recorded: where they are more than the total, recording costs that much"
        )
    if ladder.short_proof:
        yield "short proofs, of this network alone: without --quick, much more is tried"
    yield from _before(rows)
    if any(row.page_faults and row.device_time for row in rows) and ladder.memory == ALL:
        yield "`profile --memory managed` has the GPU's page faults"
    yield (
        f"times are medians over all images, ± half of their {100 * CONFIDENCE:.0f} % interval; "
        f"{SAME} may as well be equal; proof: the largest error seen as a share of its rounding "
        f"bound, proven up to 1; peak: {peak} in float32"
    )
    if any(row.vendor for row, _ in ladder.timed):
        yield "a library is compared with in its own precision; of several, the fastest"
    if any(row.executed_flop < ladder.flop_an_image for row in rows):
        yield (
            "GFLOP/s count every tap of a convolution; % of peak only those that a rung computes: "
            "some of ours leave out the taps outside the image"
        )
    yield from ladder.conditions.notes
    if ladder.doubt:
        yield "ratios are uncertain by as much: a rung for all cores loses more than one for a core"
    yield from ladder.peak_notices
    for row in rows:
        if row.verification is not None and row.verification.fault is not None:
            yield f"{row.rung} computes something wrong: {row.verification.fault}"
            yield f"  (seed {row.verification.seed}); it was not timed"
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.missing:
            reasons.setdefault(row.missing, []).append(row.rung)
    for reason, names in reasons.items():
        yield f"{', '.join(names)} cannot run here: {reason}"
    marks = {row.operations_mark for row in rows}
    if ALONE in marks:
        yield f"{ALONE} runs the network as one piece: its convolutions were timed on their own"
    if TOGETHER in marks:
        yield f"{TOGETHER} op times include the activation and pooling fused into a convolution"
    if any(row.network and row.network.interval_seconds is None for row in rows):
        yield "fewer than 6 rounds: nothing can be said about noise"
    noisy = [row.rung for row, ranked in ladder.ranked if ranked.noise == "noisy"]
    if noisy:
        yield (
            f"not certain to {100 * FAIR:.0f} % after {ladder.repeats} rounds: {', '.join(noisy)}; "
            "quieten the machine or raise --repeats"
        )


def _more_than_all(row: RungRecord) -> bool:
    times = (row.device_time, row.network)
    device, total = (0.0 if time is None else time.median_seconds for time in times)
    return device > total > 0
