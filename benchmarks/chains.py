"""Why plain loops are slow on a CPU: one sum waits for itself, four do not.

    python -m benchmarks.chains

The loops of the rung `serial` on `cifar10`'s second convolution (padded before, so without the test
for the border), and the same with four filters at a time: four independent sums, each in the same
order as before, no vectors. Prints the best of many turns on one core, and how many multiplications
of vectors the machine code has.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from tilewright import environment

TURNS = 300
Array = NDArray[np.float32]


@numba.njit(fastmath={"contract"})
def one_sum(x: Array, weight: Array, out: Array) -> None:
    filters, channels, size, _ = weight.shape
    for f in range(filters):
        for y in range(out.shape[1]):
            for column in range(out.shape[2]):
                total = np.float32(0)
                for c in range(channels):
                    for ky in range(size):
                        for kx in range(size):
                            total += x[c, y + ky, column + kx] * weight[f, c, ky, kx]
                out[f, y, column] = total


@numba.njit(fastmath={"contract"})
def four_sums(x: Array, weight: Array, out: Array) -> None:
    filters, channels, size, _ = weight.shape
    for f in range(0, filters, 4):
        for y in range(out.shape[1]):
            for column in range(out.shape[2]):
                first = second = third = fourth = np.float32(0)
                for c in range(channels):
                    for ky in range(size):
                        for kx in range(size):
                            pixel = x[c, y + ky, column + kx]
                            first += pixel * weight[f, c, ky, kx]
                            second += pixel * weight[f + 1, c, ky, kx]
                            third += pixel * weight[f + 2, c, ky, kx]
                            fourth += pixel * weight[f + 3, c, ky, kx]
                out[f, y, column], out[f + 1, y, column] = first, second
                out[f + 2, y, column], out[f + 3, y, column] = third, fourth


def main() -> None:
    generator = np.random.default_rng(0)
    x = generator.standard_normal((16, 20, 20), np.float32)
    weight = generator.standard_normal((20, 16, 5, 5), np.float32)
    loops: dict[str, Any] = {"one sum": one_sum, "four sums": four_sums}
    outputs = {name: np.empty((20, 16, 16), np.float32) for name in loops}
    best = dict.fromkeys(loops, float("inf"))
    for _ in range(TURNS + 1):  # the first compiles
        for name, loop in loops.items():
            best[name] = min(best[name], _seconds(loop, x, weight, outputs[name]))
    assert np.array_equal(*outputs.values())
    print(environment.cpu_model())
    for name, loop in loops.items():
        (assembly,) = loop.inspect_asm().values()
        vectors = len(re.findall(r"\bv?f?n?m(?:add|ul)\w*ps\b", assembly))
        rate = 2 * weight[0].size * outputs[name].size / best[name] / 1e9
        print(f"{name}: {rate:.2f} GFLOP/s, {vectors} multiplications of vectors")
    print(f"times as fast: {best['one sum'] / best['four sums']:.2f}")


def _seconds(loop: Callable[..., None], *arguments: Array) -> float:
    start = time.perf_counter()
    loop(*arguments)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
