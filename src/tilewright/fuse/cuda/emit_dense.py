"""The text of a kernel for fully connected layers over the batch."""

from __future__ import annotations

from tilewright.fuse.cuda.dense import ROW_GAP, Dense
from tilewright.fuse.cuda.emit import activation, head, struct


def dense_text(plan: Dense, name: str) -> str:
    parts = [head(plan.arithmetic, "stack.cuh", "dense.cuh")]
    parts += [_layer(plan, index) for index in range(len(plan.layers))]
    parts.append(_kernel(plan, name))
    return "\n".join(parts)


def _layer(plan: Dense, index: int) -> str:
    layer, arithmetic = plan.layers[index], plan.arithmetic
    last = index + 1 == len(plan.layers)
    if last:
        to = "TW_TO_FLOATS"
    else:
        to = "TW_TO_HALVES" if arithmetic.per_word == 2 else "TW_TO_OPERANDS"
    constants: dict[str, int | str] = {
        "WARPS": plan.warps,
        "ALL_COLUMNS": plan.all_columns(index),
        "FILTERS": layer.summed[0],
        "TO": to,
        "PLANE": 1,
        "PAIRED": 0,
        "OUT_ROW": plan.result_words if last and not plan.softmax else plan.row(index + 1),
    }
    if index == 0:
        constants |= {
            "MORE": plan.more,
            "COLUMNS": plan.columns,
            "CHUNK": plan.chunk,
            "ROW": plan.chunk + ROW_GAP,
            "CHUNK_WEIGHTS": plan.chunk_weights,
            "WORDS": plan.words,
            "STAGES": plan.stages,
        }
    else:
        constants |= {
            "ROW": plan.row(index),
            "STEPS": plan.steps(index),
            "ROW_TILES": plan.more,
        }
    return struct(f"Layer{index}", constants, activation("after", layer.before + layer.after))


def _kernel(plan: Dense, name: str) -> str:
    words, layers = plan.parameter_words, plan.layers
    first_place, _ = plan.row_places

    def place(index: int) -> str:
        """What layer `index` reads, or the softmax, or where the network's output goes."""
        if index == len(layers) and not plan.softmax:
            return "out"
        return f"shared + {first_place if index % 2 else 0}"

    def parameters(index: int) -> tuple[str, str]:
        layer = layers[index].names[0]
        return (
            f"parameters + {words[f'{layer}.weight']}",
            f"reinterpret_cast<const float*>(parameters + {words[f'{layer}.bias']})",
        )

    weight, bias = parameters(0)
    lines = [
        f'extern "C" __global__ void __launch_bounds__({plan.threads}, 1) {name}(',
        "    const word* features, word* results, const word* parameters, float4* parts,",
        "    int* arrived, int count)",
        "{",
        "    extern __shared__ uint4 memory[];",
        "    word* shared = reinterpret_cast<word*>(memory);",
        f"    const int first = blockIdx.x * {plan.images}, warp = threadIdx.x / 32;",
        f"    const int rows = min({plan.images}, count - first);",
        f"    word* out = results + size_t({plan.result_words}) * first;",
        f"    const int begin = blockIdx.y * {plan.chunks} / gridDim.y;",
        f"    const int end = (blockIdx.y + 1) * {plan.chunks} / gridDim.y;",
        f"    float sum[{plan.more}][{plan.columns}][4] = {{}};",
        f"    multiply_chunks<Layer0>(sum, shared, features, {weight}, first, count, begin, end);",
        "    if (gridDim.y > 1 && !gather<Layer0>(sum, parts, arrived, rows))",
        "        return;",
        f"    for (int i = threadIdx.x; i < {sum(plan.row_places)}; i += {plan.threads})",
        "        shared[i] = 0;",
        "    __syncthreads();",
        "#pragma unroll",
        f"    for (int m = 0; m < {plan.more}; ++m)",
        "#pragma unroll",
        f"        for (int n = 0; n < {plan.columns}; ++n)",
        f"            finish<Layer0>(sum[m][n], {bias}, {place(1)}, m * 16,",
        f"                           warp * {plan.columns} + n, rows);",
    ]
    for index in range(1, len(layers)):
        weight, bias = parameters(index)
        lines.append("    __syncthreads();")
        if plan.emptied(index + 1):
            first, size = plan.gap(index + 1)
            lines += [
                f"    for (int i = threadIdx.x; i < {plan.images * size}; i += {plan.threads})",
                f"        ({place(index + 1)})[i / {size} * {plan.row(index + 1)} + {first} + "
                f"i % {size}] = 0;",
            ]
        lines += [
            f"    connect<Layer{index}>({place(index)}, {weight}, {bias},",
            f"                   {place(index + 1)}, rows);",
        ]
    if plan.softmax:
        size, row = layers[-1].result[0], plan.row(len(layers))
        lines += [
            "    __syncthreads();",
            f"    for (int row = warp; row < rows; row += {plan.warps})",
            f"        softmax<{size}>(",
            f"            reinterpret_cast<const float*>({place(len(layers))}) + row * {row},",
            f"            reinterpret_cast<float*>(out) + row * {size});",
        ]
    return "\n".join([*lines, "}", ""])
