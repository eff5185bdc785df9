"""A CPU rung's loops as tables, one a layer: which line, how often, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rich.console import RenderableType

from tilewright.model.layers import dimensions
from tilewright.views import units
from tilewright.views.table import table

if TYPE_CHECKING:
    from tilewright.model.network import Network
    from tilewright.rungs.cpu.explain import LayerFacts
    from tilewright.rungs.rung import Rung


def report(rung: Rung, network: Network, layers: Iterable[LayerFacts]) -> Iterator[RenderableType]:
    yield f"{rung.name} on {network.name}: {rung.idea}"
    for layer in layers:
        stage = layer.stage
        yield (
            f"\n{stage.name}: {stage.layer.summary or stage.kind}, "
            f"{dimensions(stage.input_shape)} to {dimensions(stage.output_shape)}"
        )
        lined = any(fact.line is not None for fact in layer.loops)
        rows = table(layer.source, *([">line"] if lined else ()), "loop or step", ">times",
                     "where it went")  # fmt: skip
        for fact in layer.loops:
            line = "-" if fact.line is None else units.fixed(fact.line, 0)
            rows.add_row(*([line] if lined else ()), fact.code, units.count(fact.extent),
                         fact.place)  # fmt: skip
        yield rows
        yield from (f"  {note}" for note in layer.notes)
    yield (
        "\ntimes: of a loop, for each turn of the one around it, with one image; of a step, values "
        "or products"
    )
