"""The text of a kernel of patches: its constants, and the calls in order."""

from __future__ import annotations

from tilewright.fuse.cuda.emit import activation, constants, head, struct, text
from tilewright.fuse.cuda.emit_panels import multiply_wide
from tilewright.fuse.cuda.emit_structs import POOLS
from tilewright.fuse.cuda.patches import LEFT, Patches
from tilewright.fuse.cuda.steps_patches import PatchesProgram, patches_program


def patches_text(plan: Patches, name: str) -> str:
    made = patches_program(plan)
    functions = activation("before", made.before), activation("after", made.activations)
    values = {**constants(made), "POOL": POOLS[made.pool]}
    adding = [text("patches_plain.cuh")]
    if made.arithmetic.tensor:
        adding = [multiply_wide(made.arithmetic, made.columns), text("patches_tensor.cuh")]
    return "\n".join([
        head(made.arithmetic, "words.cuh", "panels.cuh", "shared.cuh", "patches.cuh"),
        *adding,
        struct("Layer", values, *functions),
        kernel_of(made, name),
    ])  # fmt: skip


def kernel_of(made: PatchesProgram, name: str) -> str:
    added, taken = (", const word* added", "added") if made.added else ("", "nullptr")
    lines = [
        f'extern "C" __global__ void __launch_bounds__({made.threads}, {made.sharing}) {name}(',
        f"    const word* images, word* results, const word* parameters, int count{added})",
        "{",
        "    extern __shared__ __align__(1024) uint4 memory[];",
        f"    __shared__ unsigned long long barriers[{2 * (made.pictures + made.stages)}];",
        f"    const float* bias = reinterpret_cast<const float*>(parameters + {made.bias});",
        "    Patches<Layer> patches;",
        "    patches.begin(memory, barriers);",
        "    if (threadIdx.x >= Patches<Layer>::ADDING) {",
        f"        give_registers<{LEFT}>();",
        "        if (threadIdx.x < Patches<Layer>::ADDING + 32)",
        f"            patches.fetch_weights(parameters + {made.weights}, count);",
        "        else",
        "            patches.fetch_pictures(images, count);",
        "    } else {",
        f"        take_registers<{made.registers}>();",
        "        Patches<Layer>::Turns turns;",
        "        const int all = Work<Layer>::all(count);",
        "#pragma unroll 1",
        "        for (int number = blockIdx.x; number < all; number += gridDim.x) {",
        "            const Work<Layer> work(number);",
        f"            float sum[{made.sums[0]}][{made.sums[1]}];",
        f"            patches.add_up(sum, bias + work.column * {made.wide}, turns);",
        f"            patches.put(sum, results, {taken}, work, count);",
        "        }",
        "    }",
        "}",
        "",
    ]
    return "\n".join(lines)
