"""The text of a kernel of tiles: its constants, and the calls in order."""

from __future__ import annotations

from tilewright.fuse.cuda.emit import activation, constants, head, struct, value
from tilewright.fuse.cuda.emit_stack import TYPES
from tilewright.fuse.cuda.emit_structs import POOLS
from tilewright.fuse.cuda.stack import Source
from tilewright.fuse.cuda.steps_tiles import TilesProgram, tiles_program
from tilewright.fuse.cuda.tiles import Tiles
from tilewright.model.layers import Pixels


def tiles_text(plan: Tiles, name: str, pixels: Pixels | None, source: Source) -> str:
    return tiles_program_text(tiles_program(plan, pixels, source), name)


def tiles_program_text(made: TilesProgram, name: str) -> str:
    functions = (
        activation("before", made.before), activation("after", made.activations),
        value(made.pixels),
    )  # fmt: skip
    values = {**constants(made), "POOL": POOLS[made.pool]}
    layer = struct("Layer", values, *functions)
    return "\n".join(
        [head(made.arithmetic, "words.cuh", "sums.cuh", "tiles.cuh"), layer, _kernel(made, name)]
    )


def _kernel(made: TilesProgram, name: str) -> str:
    added = ", const word* added" if made.added else ""
    lines = [
        f'extern "C" __global__ void __launch_bounds__({made.threads}) {name}(',
        f"    const {TYPES[made.source]}* images, word* results, const word* parameters,",
        f"    float4* parts, int* arrived, int count{added})",
        "{",
        "    extern __shared__ uint4 memory[];",
        "    word* shared = reinterpret_cast<word*>(memory);",
        f"    const int begin = blockIdx.z * {made.rounds_all} / gridDim.z;",
        f"    const int end = (blockIdx.z + 1) * {made.rounds_all} / gridDim.z;",
        f"    float sum[{made.tiles}][{made.columns}][4] = {{}};",
        "    add_rounds<Layer>(sum, shared, images, "
        f"parameters + {made.weights} + size_t(blockIdx.y) * "
        f"{made.rounds_all * made.round_weights}, count, begin, end);",
    ]
    if made.deep > 1:
        lines.append("    add_deep<Layer>(sum, reinterpret_cast<float4*>(memory));")
    lines += [
        "    if (gridDim.z > 1 && !add_parts<Layer>(sum, reinterpret_cast<float4*>(memory), parts, "
        "arrived, count))",
        "        return;",
        f"    const float* bias = reinterpret_cast<const float*>(parameters + {made.bias});",
    ]
    if made.softmax:
        lines += [
            "    __syncthreads();",
            f"    put_sums<Layer>(sum, bias, shared, nullptr, 0, {made.all_rows});",
            "    __syncthreads();",
            "    put_probabilities<Layer>(reinterpret_cast<const float*>(shared), "
            "reinterpret_cast<float*>(results), count);",
        ]
    else:
        added = "added" if made.added else "nullptr"
        lines.append(
            f"    put_sums<Layer>(sum, bias, results, {added}, first_result<Layer>(), count);"
        )
    return "\n".join([*lines, "}", ""])
