"""Layers: where each rung's time goes, layer by layer and by kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilewright.results.ladder import LadderRecord, LayerTiming, RungRecord
from tilewright.results.record import Timing
from tilewright.results.run import RunRecord
from tilewright.views import units
from tilewright.views.report import charts
from tilewright.views.report.blocks import Block, Cell, Chart, Number, Section, Spec, Table
from tilewright.views.report.material import Material, row_name, subject

READING = (
    "One bar for each rung, cut into its layers in the network's order; what is fused into a layer "
    "is part of its piece. “Shares” makes all bars equally long and shows what is worth working "
    "on next; “by kind” adds layers of one kind together."
)
COLOURS = 10  # of the page that are told apart
# Time that is no layer's.
COPIES, REST = "copies", "remainder"


@dataclass(frozen=True)
class Bar:
    """A forward pass on a rung; `parts` are names, kinds and seconds of what it is made of."""

    name: str
    images: int
    forward: float
    parts: tuple[tuple[str, str, float], ...]


def section(material: Material) -> Section:
    """Of runs; where there are none, of a ladder's rungs."""
    blocks: list[Block] = []
    run_subjects = set()
    for title, every in material.by_subject(RunRecord):
        runs = largest(every)
        blocks += [chart(title, [of_run(run) for run in runs]), phases(title, runs)]
        if any(run.usage for run in runs):
            blocks.append(processes(title, runs))
        run_subjects.add((every[0].network, every[0].device))
    for ladder in material.ladders:
        bars = [of_rung(ladder, row, time) for row, time in ladder.timed if row.layers]
        if bars and (ladder.network, ladder.device) not in run_subjects:
            blocks.append(chart(subject(ladder), bars))
    return Section("layers", "Layers", READING, (*blocks, material.words_for("layers")))


def chart(title: str, bars: Sequence[Bar]) -> Chart:
    height = charts.rows_height(len(bars))
    layers = {
        "layers": _spec(bars, "layer", "zero", height),
        "shares": _spec(bars, "layer", "normalize", height),
    }
    kinds = {
        "by kind": _spec(bars, "kind", "zero", height),
        "kinds, shares": _spec(bars, "kind", "normalize", height),
    }
    # More layers than there are colours cannot be told apart at once.
    many = len({part[0] for bar in bars for part in bar.parts}) > COLOURS
    variants = {**kinds, **layers} if many else {**layers, **kinds}
    fastest = min(bars, key=lambda bar: bar.forward / bar.images)
    told = " ".join(map(_heaviest, dict.fromkeys((bars[0], fastest))))
    return Chart(title, told, variants, table(title, bars), height)


def name(run: RunRecord) -> str:
    """A run among others of the same network and device."""
    memory = "" if run.plan.memory in ("host", "resident") else f", {run.plan.memory}"
    return f"{run.label}{memory}"


def largest(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Each rung of a network and device once: its run over the most images that all were run over,
    or over the most of its own where there are none.
    """
    sizes: dict[str, dict[str, set[int]]] = {}
    for run in runs:
        sizes.setdefault(subject(run), {}).setdefault(name(run), set()).add(run.images)
    common = {of: max(set.intersection(*each.values()), default=0) for of, each in sizes.items()}
    found: dict[tuple[str, str], RunRecord] = {}
    for run in runs:
        wanted = common[subject(run)] or max(sizes[subject(run)][name(run)])
        if run.images == wanted:
            found.setdefault((subject(run), name(run)), run)
    return list(found.values())


def of_run(run: RunRecord) -> Bar:
    parts = [(each.name, each.kind, each.seconds) for each in run.layers]
    parts += [(COPIES, COPIES, run.copy_seconds), (REST, REST, run.remainder_seconds)]
    return _bar(name(run), run.images, run.forward_seconds, parts)


def of_rung(ladder: LadderRecord, row: RungRecord, time: Timing) -> Bar:
    parts = [(_main(each), each.kind, each.time.median_seconds) for each in row.layers]
    parts.append((COPIES, COPIES, row.copies.median_seconds if row.copies else 0.0))
    rest = time.median_seconds - sum(seconds for _, _, seconds in parts)
    parts.append((REST, REST, rest))
    return _bar(row_name(row), ladder.images, time.median_seconds, parts)


def _bar(name: str, images: int, forward: float, parts: list[tuple[str, str, float]]) -> Bar:
    """Without what took no time, and without what several at once took more than there was."""
    return Bar(name, images, forward, tuple(part for part in parts if part[2] > 0))


def _main(found: LayerTiming) -> str:
    """The name of layers that were computed together, as a run's are named."""
    if found.kind == "network":
        return f"{found.layers[0]}..{found.layers[-1]}"
    return next((each for each in found.layers if each.startswith(found.kind)), found.layers[0])


def _heaviest(bar: Bar) -> str:
    layers = [part for part in bar.parts if part[0] not in (COPIES, REST)]
    if not layers or not bar.forward:
        return ""
    layer, _, seconds = max(layers, key=lambda part: part[2])
    return f"Of {bar.name}'s time {layer} takes the most, {units.share(seconds / bar.forward)}."


def _spec(bars: Sequence[Bar], by: str, stack: str, height: int) -> Spec:
    """Rows are the same for layers and kinds, stacked or shares: the page has them once."""
    every = [part for bar in bars for part in bar.parts]
    orders = {"layer": _order(part[0] for part in every), "kind": _order(part[1] for part in every)}
    longest = max(bar.forward / bar.images for bar in bars)
    unit, words = (1e-3, "ms") if longest >= 1e-2 else (1e-6, "µs")
    rows = [
        {
            "rung": bar.name, "layer": layer, "kind": kind,
            "layer place": orders["layer"].index(layer), "kind place": orders["kind"].index(kind),
            "amount": seconds / bar.images / unit, "time": units.seconds(seconds),
            "share": units.share(seconds / (bar.forward or 1)),
        }
        for bar in bars
        for layer, kind, seconds in bar.parts
    ]  # fmt: skip
    title = "share of the forward pass" if stack == "normalize" else f"{words} an image"
    told = ("rung", "layer", "kind", "time", "share")
    return charts.stacked(rows, orders[by], title, stack, told, height, by)


def _order(shown: Iterable[str]) -> list[str]:
    """Each once, what is no layer last."""
    found = dict.fromkeys(shown)
    last = [each for each in (COPIES, REST) if each in found]
    return [each for each in found if each not in last] + last


def table(title: str, bars: Sequence[Bar]) -> Table:
    columns = dict.fromkeys(layer for bar in bars for layer, _, _ in bar.parts)
    rows: list[Sequence[Cell]] = []
    for bar in bars:
        seconds = {layer: value for layer, _, value in bar.parts}
        rows.append(
            (
                bar.name,
                *(_cell(seconds.get(layer)) for layer in columns),
                _cell(bar.forward),
                Number(units.count(bar.images), bar.images),
            )
        )
    heads = ("rung", *(f">{layer}, ms" for layer in columns), ">forward, ms", ">images")
    return Table(f"{title}: layers, ms over all images", heads, rows)


def _cell(seconds: float | None) -> Cell:
    return "-" if seconds is None else Number(units.milliseconds(seconds), seconds)


def phases(title: str, runs: Sequence[RunRecord]) -> Table:
    """The parts of the whole job, as both source projects printed them."""
    columns = dict.fromkeys(each.name for run in runs for each in run.phases)
    rows: list[Sequence[Cell]] = []
    for run in runs:
        seconds = {each.name: each.seconds for each in run.phases}
        rows.append(
            (name(run), _cell(run.total_seconds), *(_cell(seconds.get(each)) for each in columns))
        )
    heads = ("rung", ">total", *(f">{each}" for each in columns))
    return Table(f"{title}: the whole job, phase by phase, in ms", heads, rows)


def processes(title: str, runs: Sequence[RunRecord]) -> Table:
    """What `time` says of a run that had a process of its own."""
    rows: list[Sequence[Cell]] = []
    for run in runs:
        if (used := run.usage) is not None:
            rows.append(
                (
                    name(run), Number(units.count(run.images), run.images),
                    *(
                        Number(units.seconds(each), each)
                        for each in (used.elapsed_seconds, used.user_seconds, used.system_seconds)
                    ),
                    Number(units.share(used.cpu_share), used.cpu_share),
                    Number(units.size(run.peak_memory_bytes), run.peak_memory_bytes),
                    Number(units.count(used.page_faults), used.page_faults),
                )
            )  # fmt: skip
    return Table(
        f"{title}: the whole process",
        (
            "rung", ">images", ">real", ">user", ">system", ">CPU", ">largest resident set",
            ">page faults",
        ),
        rows,
    )  # fmt: skip
