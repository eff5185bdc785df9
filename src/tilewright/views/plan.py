"""A plan: what is chosen for every step, before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType

from tilewright.plan import Plan
from tilewright.views.table import table


def steps(plan: Plan) -> RenderableType:
    """Every step with its rung, precision and options."""
    rows = table(
        f"{plan.network} on {plan.device}, memory plan {plan.memory}: who computes what",
        "layers", "rung", "precision", "options",
    )  # fmt: skip
    for step in plan.steps:
        rows.add_row(span(step.layers), step.rung, step.precision, options(step.options))
    return rows


def span(layers: Sequence[str]) -> str:
    """Consecutive layers in a few characters."""
    return layers[0] if len(layers) == 1 else f"{layers[0]}..{layers[-1]}"


def options(given: object) -> str:
    """Names and values, whatever they are in."""
    return ", ".join(_pairs(given))


def _pairs(value: object, name: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _pairs(each, key)
    elif isinstance(value, list | tuple) and any(isinstance(x, Mapping) for x in value):
        for each in value:
            yield from _pairs(each, name)
    elif isinstance(value, list | tuple):
        yield f"{name} {'x'.join(map(str, value))}"
    else:
        yield f"{name} {value}"
