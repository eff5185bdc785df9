"""The text of a kernel for fully connected layers over the batch: its steps, printed."""

from __future__ import annotations

from typing import assert_never

from tilewright.fuse.cuda.dense import Dense
from tilewright.fuse.cuda.emit import activation, constants, head, struct
from tilewright.fuse.cuda.steps import Barrier, Clear
from tilewright.fuse.cuda.steps_dense import (
    Connect,
    DenseProgram,
    DenseStep,
    Empty,
    Finish,
    Gather,
    Outputs,
    Products,
    SoftmaxRows,
    dense_program,
)


def dense_text(plan: Dense, name: str) -> str:
    return dense_program_text(dense_program(plan), name)


def dense_program_text(made: DenseProgram, name: str) -> str:
    parts = [head(made.arithmetic, "words.cuh", "sums.cuh", "dense.cuh")]
    parts += [_struct(step) for step in made.steps if isinstance(step, Products | Connect)]
    parts.append(_kernel(made, name))
    return "\n".join(parts)


def _struct(step: Products | Connect) -> str:
    index = step.index if isinstance(step, Connect) else 0
    after = activation("after", step.outputs.activations)
    return struct(f"Layer{index}", constants(step.outputs) | constants(step), after)


def _kernel(made: DenseProgram, name: str) -> str:
    lines = [
        f'extern "C" __global__ void __launch_bounds__({made.threads}, 1) {name}(',
        "    const word* features, word* results, const word* parameters, float4* parts,",
        "    int* arrived, int count)",
        "{",
        "    extern __shared__ uint4 memory[];",
        "    word* shared = reinterpret_cast<word*>(memory);",
        f"    const int first = blockIdx.x * {made.images}, warp = threadIdx.x / 32;",
        f"    const int rows = min({made.images}, count - first);",
        f"    word* out = results + size_t({made.result_words}) * first;",
        f"    const int begin = blockIdx.y * {made.chunks} / gridDim.y;",
        f"    const int end = (blockIdx.y + 1) * {made.chunks} / gridDim.y;",
    ]
    lines += [line for step in made.steps for line in _call(step)]
    return "\n".join([*lines, "}", ""])


def _call(step: DenseStep) -> list[str]:
    """A step's lines inside the kernel."""
    match step:
        case Products():
            return [
                f"    float sum[{step.more}][{step.columns}][4] = {{}};",
                "    multiply_chunks<Layer0>(sum, shared, features, "
                f"parameters + {step.weights}, first, count, begin, end);",
            ]
        case Gather():
            return [
                "    if (gridDim.y > 1 && !gather<Layer0>(sum, parts, arrived, rows))",
                "        return;",
            ]
        case Clear():
            return [
                f"    for (int i = threadIdx.x; i < {step.words}; i += {step.threads})",
                "        shared[i] = 0;",
            ]
        case Barrier():
            return ["    __syncthreads();"]
        case Finish():
            bias, place = _bias(step.outputs), _place(step.outputs)
            return [
                "#pragma unroll",
                f"    for (int m = 0; m < {step.more}; ++m)",
                "#pragma unroll",
                f"        for (int n = 0; n < {step.columns}; ++n)",
                f"            finish<Layer0>(sum[m][n], {bias}, {place}, m * 16,",
                f"                           warp * {step.columns} + n, rows);",
            ]
        case Empty():
            total = step.rows * step.words
            return [
                f"    for (int i = threadIdx.x; i < {total}; i += {step.threads})",
                f"        (shared + {step.at})[i / {step.words} * {step.row} + {step.first} + "
                f"i % {step.words}] = 0;",
            ]
        case Connect():
            bias, place = _bias(step.outputs), _place(step.outputs)
            return [
                f"    connect<Layer{step.index}>(shared + {step.at}, "
                f"parameters + {step.weights}, {bias},",
                f"                   {place}, rows);",
            ]
        case SoftmaxRows():
            return [
                f"    for (int row = warp; row < rows; row += {step.warps})",
                f"        softmax<{step.size}>(",
                f"            reinterpret_cast<const float*>(shared + {step.at}) + "
                f"row * {step.row},",
                f"            reinterpret_cast<float*>(out) + row * {step.size});",
            ]
        case unknown:
            assert_never(unknown)


def _bias(outputs: Outputs) -> str:
    return f"reinterpret_cast<const float*>(parameters + {outputs.bias})"


def _place(outputs: Outputs) -> str:
    return "out" if outputs.at is None else f"shared + {outputs.at}"
