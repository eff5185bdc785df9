"""Options as they come from a plan, which may be anybody's: none but what a rung offers."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from tilewright.errors import TilewrightError
from tilewright.model.network import Stage
from tilewright.rungs import rung as contract
from tilewright.rungs.gpu.design import Convolutions, Geometry, Options
from tilewright.runtime.dialect import DoesNotFit, Limits


def checked(
    stage: Stage, convolutions: Convolutions, limits: Limits, options: contract.Options
) -> Options:
    """The options, if they are the rung's own choice for a layer on a device, or a candidate."""
    try:
        found = msgspec.convert(options, dict[str, int])
    except msgspec.ValidationError as error:
        raise TilewrightError(f"{stage.name}: options: {error}") from error
    candidates: list[Options] = [{}]  # only convolutions have a choice
    if stage.kind == "conv":
        geometry = Geometry.of(stage)
        # Its own choice, if it has one, is quickly found again; all the others may be thousands.
        with suppress(DoesNotFit):
            if found == convolutions.choose(geometry, limits):
                return found
        candidates = list(convolutions.candidates(geometry, limits))
    if found not in candidates:
        raise TilewrightError(
            f"{stage.name}: options {_words(found)} are none that the rung offers for this layer "
            f"on this device, which are {_values(candidates)}"
        )
    return found


def _words(options: Options) -> str:
    words = ", ".join(f"{name} {value}" for name, value in options.items())
    return f"{words or 'without anything':.100}"


def _values(candidates: list[Options]) -> str:
    """Of each name its values, but not what goes together: that may be thousands."""
    if not candidates or not candidates[0]:
        return "none"
    values = {name: sorted({each[name] for each in candidates}) for name in candidates[0]}
    return ", ".join(f"{name} of {'/'.join(map(str, of))}" for name, of in values.items())
