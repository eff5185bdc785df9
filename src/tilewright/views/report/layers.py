"""Layers: where each rung's time goes, layer by layer and by kind."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.results.run import LayerTime, RunRecord
from tilewright.views import units
from tilewright.views.report import charts
from tilewright.views.report.blocks import Block, Cell, Chart, Number, Section, Spec, Table
from tilewright.views.report.material import Material, subject

READING = (
    "One bar for each rung, cut into its layers in the network's order; what is fused into a layer "
    "is part of its piece. “Shares” makes all bars equally long and shows what is worth working "
    "on next; “by kind” adds layers of one kind together."
)
# Time that is no layer's.
COPIES, REST = "copies", "remainder"


def section(material: Material) -> Section:
    blocks: list[Block] = []
    for title, every in material.by_subject(RunRecord):
        runs = largest(every)
        blocks += [chart(title, runs), phases(title, runs)]
        if any(run.usage for run in runs):
            blocks.append(processes(title, runs))
    return Section("layers", "Layers", READING, (*blocks, material.words_for("layers")))


def chart(title: str, runs: Sequence[RunRecord]) -> Chart:
    height = charts.rows_height(len(runs))
    heaviest = [_heaviest(run) for run in runs]
    return Chart(
        title,
        " ".join(
            f"{name(run)}: {layer.name} takes {units.share(layer.seconds / run.forward_seconds)}."
            for run, layer in zip(runs, heaviest, strict=True)
            if layer is not None and run.forward_seconds
        ),
        {
            "layers": _spec(runs, "layer", "zero", height),
            "shares": _spec(runs, "layer", "normalize", height),
            "by kind": _spec(runs, "kind", "zero", height),
            "kinds, shares": _spec(runs, "kind", "normalize", height),
        },
        table(title, runs),
        height,
    )


def name(run: RunRecord) -> str:
    """A run among others of the same network and device."""
    memory = "" if run.plan.memory in ("host", "resident") else f", {run.plan.memory}"
    return f"{run.label}{memory}"


def largest(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Each rung of a network and device once: its run over the most images."""
    found: dict[tuple[str, str], RunRecord] = {}
    for run in runs:
        key = (subject(run), name(run))
        if key not in found or run.images > found[key].images:
            found[key] = run
    return list(found.values())


def _heaviest(run: RunRecord) -> LayerTime | None:
    return max(run.layers, key=lambda layer: layer.seconds, default=None)


def parts(run: RunRecord) -> list[tuple[str, str, float]]:
    """What a forward pass is made of: names, kinds, seconds."""
    found = [(each.name, each.kind, each.seconds) for each in run.layers if each.seconds]
    if run.copy_seconds:
        found.append((COPIES, COPIES, run.copy_seconds))
    if run.remainder_seconds > 0:
        found.append((REST, REST, run.remainder_seconds))
    return found


def _spec(runs: Sequence[RunRecord], by: str, stack: str, height: int) -> Spec:
    order: dict[str, None] = {}
    rows = []
    for run in runs:
        for layer, kind, seconds in parts(run):
            shown = layer if by == "layer" else kind
            order.setdefault(shown)
            rows.append({
                "rung": name(run), "part": shown, "layer": layer, "kind": kind,
                "amount": 1e6 * seconds / run.images, "time": units.seconds(seconds),
                "share": units.share(seconds / run.forward_seconds),
            })  # fmt: skip
    last = [each for each in (COPIES, REST) if each in order]
    domain = [each for each in order if each not in last] + last
    for row in rows:
        row["place"] = domain.index(str(row["part"]))
    title = "share of the forward pass" if stack == "normalize" else "µs an image"
    told = ("rung", "layer", "kind", "time", "share")
    return charts.stacked(rows, domain, title, stack, told, height)


def table(title: str, runs: Sequence[RunRecord]) -> Table:
    columns = dict.fromkeys(layer for run in runs for layer, _, _ in parts(run))
    rows: list[Sequence[Cell]] = []
    for run in runs:
        seconds = {layer: value for layer, _, value in parts(run)}
        rows.append(
            (
                name(run),
                *(_cell(seconds.get(layer)) for layer in columns),
                _cell(run.forward_seconds),
                Number(units.count(run.images), run.images),
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
            (name(run), *(_cell(seconds.get(each)) for each in columns), _cell(run.total_seconds))
        )
    heads = ("rung", *(f">{each}" for each in columns), ">total")
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
