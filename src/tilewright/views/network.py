"""A network's layer table: shapes, parameters, arithmetic, traffic."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from tilewright.model import zoo
from tilewright.model.layers import dimensions
from tilewright.model.network import Network
from tilewright.views import units
from tilewright.views.table import table

# Notes of what was read from another format, each on a line of its own: how pixels enter, what was
# folded into other layers, what the output is instead.
LINES = ("input", "folded", "output")


def layer_table(network: Network) -> Iterator[RenderableType]:
    rows = table(
        f"{network.name}: one image, float32", "layer", "settings", "output", ">parameters",
        ">MFLOP", ">bytes", ">FLOP/byte",
    )  # fmt: skip
    for stage in network.stages:
        rows.add_row(
            stage.name,
            stage.layer.summary,
            dimensions(stage.output_shape),
            units.count(stage.parameter_count),
            _megaflop(stage.flops),
            units.size(stage.bytes),
            _intensity(stage.flops, stage.bytes),
        )
    moved = sum(stage.bytes for stage in network.stages)
    rows.add_section()
    rows.add_row(
        "total", "", "", units.count(network.parameter_count), _megaflop(network.flops),
        units.size(moved), _intensity(network.flops, moved),
    )  # fmt: skip
    yield rows
    yield (
        "\nMFLOP: 2 for each multiply-add, averages 1 for each addition. bytes: input, parameters "
        "and output moved once."
    )
    if network.parameters:
        yield f"\nweights: {_provenance(network)}"
        yield from (f"{key}: {network.notes[key]}" for key in LINES if key in network.notes)
    elif not network.parameter_shapes:
        yield "\nweights: none needed"
    elif zoo.holds(network):
        yield f"\nweights: none here; `tilewright train {network.name}` makes them"
    else:
        yield (
            "\nweights: none here; give some with --weights, or make them with `tilewright train`\n"
            "and the path of this description"
        )


def _provenance(network: Network) -> str:
    others = {key: value for key, value in network.notes.items() if key not in LINES}
    notes = [f"{key.replace('_', ' ')} {value}" for key, value in others.items()]
    return " ".join("; ".join(notes).split()) or "given"


def _megaflop(flops: int) -> str:
    return units.fixed(flops / 1e6, 3) if flops else "-"


def _intensity(flops: int, moved: int) -> str:
    return units.fixed(flops / moved, 1) if flops and moved else "-"
