"""`serial`: nested loops on one core, the arithmetic exactly as the definition has it.

The loops run image, filter, y, x, channel, kernel y, kernel x, with the bounds test for the
padding inside. It is the bottom of the ladder: every other rung is measured against it. It
loses because one core works, and because a sum is one chain of additions, each of which waits for
the one before it: four sums at a time were 3.5 times as fast, without vectors (docs/ladder.md).
"""

from __future__ import annotations

from tilewright.model.network import Parameters, Stages
from tilewright.precision import Precision
from tilewright.rungs.rung import Launch, Options, Rung, launch_of
from tilewright.runtime import FunctionRuntime
from tilewright.runtime.cpu import open_runtime


def prepare(
    runtime: FunctionRuntime,
    stages: Stages,
    parameters: Parameters,
    options: Options,
    precision: Precision,
) -> Launch:
    from tilewright.rungs.cpu import loops

    run = loops.loops_for(stages, parameters).on(cores=1)
    return launch_of(runtime, f"serial_{stages[0].kind}", stages, run)


RUNG = Rung(
    name="serial",
    idea="nested loops on one core: the definition of the layers, and the yardstick",
    devices=("cpu",),
    prepare=prepare,
    open_runtime=open_runtime,
    form="loops",
    skips_taps=True,
)
