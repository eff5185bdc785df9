"""A run beside what its device can do at most: how near each layer is, and what holds it up."""

from __future__ import annotations

from msgspec.structs import replace

from tilewright.limits import Rates, held_up, limit
from tilewright.precision import FLOAT32
from tilewright.profiling.ceilings import ceilings
from tilewright.results.run import LayerTime, RunRecord
from tilewright.runtime.device import Device
from tilewright.trace import Cost


def beside_peak(run: RunRecord) -> RunRecord:
    """The record with the device's peak in float32; without, if it was computed otherwise.

    What is known is taken, from a busy machine, too: a run is no place to wait for another try.
    """
    if run.plan.precision != FLOAT32.name:
        return run
    fastest = (each.executed_flop / each.seconds for each in run.layers if each.seconds)
    device = Device.parse(run.device)
    found, _ = ceilings(device, run.device_name, at_least=max(fastest, default=0.0), rough=True)
    known = Rates(found.flops, found.bytes)
    layers = tuple(_beside(layer, known, device.is_gpu) for layer in run.layers)
    return replace(run, peak_flops=found.flops, layers=layers)


def _beside(layer: LayerTime, known: Rates, on_gpu: bool) -> LayerTime:
    """Of a layer that computes something: its arithmetic, its memory, or neither."""
    if not layer.seconds or not layer.flop:
        return layer
    bound = limit(Cost(layer.executed_flop, layer.least_bytes), known)
    words = "" if bound is None else held_up(bound, layer.seconds, layer.launches, on_gpu)
    return replace(layer, limit=words)
