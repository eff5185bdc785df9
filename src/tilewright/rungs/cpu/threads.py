"""`threads`: the loops of `serial`, shared out over all cores.

The very same compiled kernels run; each core takes an equal run of jobs (output planes of a
convolution, images of a softmax). Jobs write different parts of the output, so nothing needs a
lock, and Numba's code holds no GIL. It should win by the number of cores, less where a layer
has fewer jobs than cores or so little work that waking a thread costs more.
"""

from __future__ import annotations

from tilewright.environment import cpu_cores
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

    run = loops.loops_for(stages, parameters).on(cpu_cores())
    return launch_of(runtime, f"threads_{stages[0].kind}", stages, run)


RUNG = Rung(
    name="threads",
    idea="the same loops over all cores: output planes are independent, so each core takes some",
    against="serial",
    devices=("cpu",),
    prepare=prepare,
    open_runtime=open_runtime,
    form="loops",
    skips_taps=True,
)
