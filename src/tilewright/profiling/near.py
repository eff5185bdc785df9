"""A run beside the measured peak of its device."""

from __future__ import annotations

from msgspec.structs import replace

from tilewright.precision import FLOAT32
from tilewright.profiling.ceilings import ceilings
from tilewright.results.run import RunRecord
from tilewright.runtime.device import Device


def beside_peak(run: RunRecord) -> RunRecord:
    """The record with the peak in float32; without, if it was computed otherwise.

    What is known is taken, from a busy machine, too: a run is no place to wait for another try.
    """
    if run.plan.precision != FLOAT32.name:
        return run
    rates = (each.executed_flop / each.seconds for each in run.layers if each.seconds)
    device = Device.parse(run.device)
    found, _ = ceilings(device, run.device_name, at_least=max(rates, default=0.0), rough=True)
    return replace(run, peak_flops=found.flops)
