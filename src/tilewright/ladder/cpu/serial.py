"""`serial`: nested loops on one core, the arithmetic exactly as the definition has it.

The loops run image, filter, y, x, channel, kernel y, kernel x, with the bounds test for the
padding inside. It is the bottom of the ladder: every other rung is measured against it. It
loses because one core works, and because a sum is one chain of additions, each of which waits for
the one before it: four sums at a time were 3.5 times as fast, without vectors (docs/ladder.md).
"""

from __future__ import annotations

from tilewright.ladder.rung import Launch, Rung, Stages
from tilewright.model.network import Parameters
from tilewright.runtime import Buffer, FunctionRuntime
from tilewright.runtime.cpu import CpuRuntime


def prepare(runtime: FunctionRuntime, stages: Stages, parameters: Parameters) -> Launch:
    from tilewright.ladder.cpu import loops

    kernel = runtime.build(
        f"serial_{stages[0].kind}", loops.loops_for(stages, parameters).on(cores=1)
    )
    layers = (stages[0].name,)

    def launch(x: Buffer, out: Buffer) -> None:
        runtime.launch(kernel, x, out, layers=layers)

    return launch


RUNG = Rung(
    name="serial",
    idea="nested loops on one core: the definition of the layers, and the yardstick",
    devices=("cpu",),
    prepare=prepare,
    open_runtime=lambda device, memory: CpuRuntime(),
    skips_taps=True,
)
