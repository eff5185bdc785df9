"""Constants of steps as structs, which building blocks are made for; where they are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from tilewright.fuse.cuda.emit import activation, constants, struct, value
from tilewright.fuse.cuda.steps import (
    Blank,
    Border,
    Channels,
    Convolve,
    Each,
    Fill,
    Join,
    Outside,
    Step,
    Together,
    Windows,
)

POOLS: dict[str, int | str] = {
    "": 0,
    "max": "TW_POOL_MAX",
    "max of each": "TW_POOL_MAX_OF_EACH",
    "average": "TW_POOL_AVERAGE",
}
# Steps with structs, whose names have their numbers.
Named = Fill | Border | Blank | Convolve | Each | Windows | Join | Channels
AnyNamed = TypeVar("AnyNamed", bound=Named)
# What sums are, whatever becomes of them.
Sums = tuple[object, ...]


def declared(step: Step) -> list[str]:
    """Structs of a step, or of those that only some strips do, or several images together."""
    steps = step.steps if isinstance(step, Outside | Together) else (step,)
    return [text for each in steps for text in _struct(each)]


def _struct(step: Step | Blank) -> list[str]:
    """A step's constants, if it has any, as the building blocks take them."""
    match step:
        case Fill():
            return [struct(load_name(step), constants(step), value(step.pixels))]
        case Border():
            return [struct(f"Border{step.index}", constants(step))]
        case Blank():
            return [struct(f"Blank{step.index}", constants(step))]
        case Convolve():
            values = {
                **constants(step), "POOL": POOLS[step.pool], "ADDED": int(step.added is not None),
                "ADDED_ROW": step.added.row if step.added else 0, **constants(step.target),
            }  # fmt: skip
            functions = activation("before", step.before), activation("after", step.activations)
            return [struct(f"Layer{step.index}", values, *functions)]
        case Each() | Windows() | Join():
            values = {**constants(step), **constants(step.target)}
            made = [struct(f"Layer{step.index}", values, activation("after", step.activations))]
            if isinstance(step, Join):
                made += [
                    struct(f"Layer{step.index}Part{number}", constants(part), value(part.pixels))
                    for number, part in enumerate(step.parts)
                ]
            return made
        case Channels():
            values = {**constants(step), "FLOATS": 0, **constants(step.target)}
            return [struct(f"Layer{step.index}", values, activation("after", step.activations))]
    return []


def load_name(step: Fill) -> str:
    return f"Load{step.index}" if step.index else "Load"


def named_once(steps: Sequence[Step]) -> list[Step]:
    """The same steps, with one number, that of the first, where structs say the same."""
    known: dict[tuple[object, ...], int] = {}

    def named(step: AnyNamed) -> AnyNamed:
        plain = type(step), *_struct(replace(step, index=0))
        return replace(step, index=known.setdefault(plain, step.index))

    def of_all(step: Step) -> Step:
        if isinstance(step, Outside):
            inside = (named(each) if isinstance(each, Blank) else each for each in step.steps)
            return replace(step, steps=tuple(inside))
        return named(step) if isinstance(step, Named) else step

    return [of_all(step) for step in steps]


def alike_sums(steps: Sequence[Step]) -> dict[Sums, list[int]]:
    """The layers with the same sums, by number."""
    found: dict[Sums, list[int]] = {}
    for step in steps:
        if isinstance(step, Convolve):
            layers = found.setdefault(sums_of(step), [])
            layers += [] if step.index in layers else [step.index]
    return found


def sums_of(step: Convolve) -> Sums:
    """All that the call for a layer depends on, but for places, and for what becomes of sums."""
    target, given = step.target, step.added.given if step.added else None
    constant = tuple(constants(step).values())
    return constant, step.weights_shared, target.at is None, target.apart, given
