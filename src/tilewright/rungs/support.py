"""Which rungs can compute which layers; a layer that one cannot is named before anything starts."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.model.layers.forms import MissingForm
from tilewright.model.network import Stage
from tilewright.rungs import rungs
from tilewright.rungs.rung import Rung
from tilewright.runtime.device import Device


def check(rung: Rung, stages: Iterable[Stage], device: Device) -> None:
    """MissingForm, with the rungs that can, if there is a layer that the rung cannot compute."""
    for stage in stages:
        if reason := rung.supports(stage):
            able = [each.name for each in rungs(device) if each.supports(stage) is None]
            who = f"{', '.join(able)} can" if able else f"no rung on {device} can"
            raise MissingForm(f"rung {rung.name!r} cannot compute {reason}; {who}")
