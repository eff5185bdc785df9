"""What the tensor cores of a GPU do at best, measured: products of registers, and nothing else."""

from __future__ import annotations

from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.emit import head
from tilewright.runtime.cuda import CudaRuntime
from tilewright.runtime.device import Device
from tilewright.trace import Trace

REPEATS = 5
# Independent sums of a warp, warps of a block, and products of each sum: about a millisecond.
SUMS, WARPS, ROUNDS = 8, 16, 10_000
TEXT = """
extern "C" __global__ void __launch_bounds__(%d, 1) tensor_peak(float* out)
{
    float sum[%d][4] = {};
    const word a = threadIdx.x, b = threadIdx.x * 3;
    for (int i = 0; i < %d; ++i)
#pragma unroll
        for (int k = 0; k < %d; ++k)
            multiply(sum[k], a, b, a, b, make_uint2(b, a));
    float total = 0.0f;
#pragma unroll
    for (int k = 0; k < %d; ++k)
        total += sum[k][0] + sum[k][1] + sum[k][2] + sum[k][3];
    out[threadIdx.x] = total;
}
"""


def tensor_peak(device: Device, precision: str) -> float:
    """FLOP a second of the instructions that our kernels use; the best of a few tries."""
    runtime = CudaRuntime(device)
    arithmetic = ARITHMETICS[precision]
    text = head(arithmetic, "words.cuh") + TEXT % (32 * WARPS, SUMS, ROUNDS, SUMS, SUMS)
    kernel = runtime.compile_text("tensor_peak", text, 32 * WARPS, 0)
    out, blocks = runtime.allocate((32 * WARPS,)), runtime.limits.processors
    trace = runtime.trace = Trace()
    for _ in range(REPEATS):
        runtime.enqueue(kernel, (blocks, 1, 1), (out,), ())
    runtime.synchronise()
    each = 2 * 16 * 8 * arithmetic.step * arithmetic.per_word
    flops = each * SUMS * ROUNDS * WARPS * blocks
    return flops / min(event.seconds for event in trace.of("kernel"))
