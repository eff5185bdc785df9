"""`padded-reduce`: the input padded first, and every sum shared by threads that reduce.

The thesis's "pad" version with a parallel reduction: `padded`'s first kernel, then
`direct-reduce`'s without its bounds test. It loses to `padded` where outputs are plenty and wins
where they are few, as `direct-reduce` does to `direct`; padding makes little difference beside that
(docs/ladder.md).
"""

from __future__ import annotations

from tilewright.rungs.gpu.design import Design, Geometry, Options, preferring
from tilewright.rungs.gpu.direct_reduce import fewer_reducers, most_reducers, reduce_work
from tilewright.rungs.gpu.padded import padded_design
from tilewright.rungs.gpu.prepare import gpu_rung


def build(geometry: Geometry, options: Options) -> Design:
    return padded_design("padded_reduce", geometry, options, reduce_work)


RUNG = gpu_rung(
    "padded-reduce",
    "both: no bounds test, and threads share each sum and reduce",
    preferring(most_reducers, fewer_reducers, build),
    against="padded",
)
