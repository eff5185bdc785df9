"""What a run means, in two sentences: which layer takes longest, how near it is to the limit."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.limits import LEAST
from tilewright.results.run import RunRecord
from tilewright.views import units


def sentences(run: RunRecord) -> Iterator[str]:
    timed = [layer for layer in run.layers if layer.seconds]
    if not timed:
        return
    slowest = max(timed, key=lambda layer: layer.seconds)
    share = units.share(slowest.seconds / run.forward_seconds)
    yield (
        f"{slowest.name} takes longest of all layers: {units.seconds(slowest.seconds)} of "
        f"{units.seconds(run.forward_seconds)} ({share})."
    )
    executed = sum(layer.executed_flop for layer in run.layers)
    if not run.peak_flops or not executed:
        return
    whole = executed / run.forward_seconds / run.peak_flops
    own = slowest.executed_flop / slowest.seconds / run.peak_flops
    alone = f"{slowest.name} reaches {_percent(own)} of" if own else "That is far from"
    yield (
        f"{alone} the {units.digits(run.peak_flops / 1e9)} GFLOP/s that this device's arithmetic "
        f"was measured at, the whole network {_percent(whole)}."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= LEAST else f"less than {100 * LEAST:.0f} %"
