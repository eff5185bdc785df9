"""The text of kernels for fully connected layers in panels."""

from __future__ import annotations

from typing import assert_never

from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.emit import IN_ORDER, activation, head, struct, text, value
from tilewright.fuse.cuda.panels import CHUNK, Panels
from tilewright.fuse.cuda.panels_ways import LEFT, Few, How, Into, Many
from tilewright.fuse.cuda.stack import Source
from tilewright.model.layers import Pixels

TYPES = {"uint8": "unsigned char", "float32": "float", "panels": "uint4"}


def panels_text(plan: Panels, how: How, name: str, pixels: Pixels | None, source: Source) -> str:
    """One of a plan's kernels; `source` is what it reads."""
    return "\n".join([
        head(plan.arithmetic, "words.cuh", "panels.cuh"), *_blocks(plan.arithmetic, how),
        kernel_of(plan, how, name, pixels, source),
    ])  # fmt: skip


def kernel_of(plan: Panels, how: How, name: str, pixels: Pixels | None, source: Source) -> str:
    """The same without the building blocks."""
    read = "panels" if isinstance(how, Many) else source
    values = _constants(plan)
    match how:
        case Few():
            values |= {"TILES": how.tiles, "COLUMNS": how.columns, "WARPS": how.warps,
                       "UNROLL": how.unroll, "ROWS": how.rows, "MANY": int(how.many),
                       "BY_OUTPUT": int(not plan.arithmetic.tensor and not how.many)}  # fmt: skip
            body = _few(plan, how)
        case Many():
            values |= {"BANDS": how.bands, "WIDE": how.wide, "STAGES": how.stages,
                       "SPLITS": how.splits, "PARTS": how.parts, "ACROSS": how.across,
                       "TALL": how.tall, "BAND": how.band, "EACH": how.each}  # fmt: skip
            body = _many(plan, how)
        case Into():
            body = ["    into_panels<Layer>(features, reinterpret_cast<uint4*>(results), count);"]
        case unknown:
            assert_never(unknown)
    layer = plan.layer
    return "\n".join([
        struct("Layer", values, value(pixels if source == "uint8" else None),
               activation("after", layer.before + layer.after)),
        f'extern "C" __global__ void {_bounds(plan, how)} {name}(',
        f"    const {TYPES[read]}* features, word* results, const word* parameters, int count)",
        "{",
        "    extern __shared__ __align__(1024) uint4 memory[];",
        "    const float* bias = reinterpret_cast<const float*>(parameters);",
        f"    const word* weights = parameters + {plan.outputs};",
        *body,
        "}",
        "",
    ])  # fmt: skip


def _bounds(plan: Panels, how: How) -> str:
    threads = plan.threads_of(how)
    if not isinstance(how, Many):
        return f"__launch_bounds__({threads})"
    blocks = how.across, 1, how.parts
    cluster = f"__cluster_dims__{blocks} " if max(blocks) > 1 else ""
    return f"{cluster}__launch_bounds__({threads}, {how.blocks})"


def _constants(plan: Panels) -> dict[str, int | str]:
    _, height, width = plan.layer.source
    return {
        "FEATURES": plan.features,
        "PLANE": height * width,
        "PIECES": plan.own_pieces,
        "CHUNKS": plan.own_pieces // CHUNK,
        "FILTERS": plan.filters,
        "ROUNDED": -(-plan.filters // 8) * 8,
        "OUTPUTS": plan.outputs,
        "TO_PANELS": int(plan.gives == "panels"),
        "OUT_PIECES": plan.pieces(plan.filters),
        "SOFTMAX": int(plan.softmax is not None),
    }


def _few(plan: Panels, how: Few) -> list[str]:
    return [
        f"    const int first = blockIdx.y * {16 * how.tiles}, group = blockIdx.x * {how.columns};",
        f"    float sum[{how.tiles}][{how.columns}][4] = {{}};",
        "    share_sums<Layer>(sum, features, reinterpret_cast<const uint4*>(weights), first, "
        "group, count);",
        "    add_up<Layer>(sum, reinterpret_cast<float4*>(memory), bias, results, first, group, "
        "count);",
    ]


def _many(plan: Panels, how: Many) -> list[str]:
    tensor = plan.arithmetic.tensor
    sums, held = how.sums(tensor), how.registers(tensor)
    return [
        f"    __shared__ unsigned long long barriers[{2 * how.stages}];",
        f"    const int band = blockIdx.x * {how.bands}, image = blockIdx.y * {how.wide};",
        f"    const int bands = max(0, min({how.bands}, {plan.outputs // how.band} - band));",
        "    Ring<Layer> ring;",
        "    ring.begin(memory, barriers);",
        "    if (threadIdx.x >= Own<Layer>::ALL) {",
        f"        give_registers<{LEFT}>();",
        "        ring.fetch_all(features, weights, band, bands, image, count);",
        "    } else {",
        f"        take_registers<{held}>();",
        f"        float sum[{how.tall}][{sums}];",
        f"        begin_sums<Layer>(sum, bias, band * {how.band});",
        "        multiply_panels<Layer>(sum, ring, memory);",
        "        gather<Layer>(sum[0], reinterpret_cast<float*>(memory));",
        f"        put_sums<Layer>(sum, results, bias, memory, band * {how.band}, image, count);",
        "        leave<Layer>();",
        "    }",
    ]


def _blocks(arithmetic: Arithmetic, how: How) -> list[str]:
    """The building blocks that a kernel needs."""
    match how:
        case Few():
            return [text("panels_few.cuh")]
        case Many() if arithmetic.tensor:
            own = [multiply_wide(arithmetic, how.wide), text("panels_tensor.cuh")]
            return [text("shared.cuh"), text("panels_many.cuh"), *own]
        case Many():
            own = [IN_ORDER, text("panels_plain.cuh")]
            return [text("shared.cuh"), text("panels_many.cuh"), *own]
        case Into():
            return []
        case unknown:
            assert_never(unknown)


def multiply_wide(arithmetic: Arithmetic, wide: int) -> str:
    """The tensor cores' instruction for 64 rows and so many columns, over two pieces of the sum; of
    operands in parts to what was there before, or to nothing."""
    kind, step, more = ("f16", 16, ", 0, 0") if arithmetic.per_word == 2 else ("tf32", 8, "")
    count = wide // 2
    sums = ", ".join(f"%{each}" for each in range(count))
    held = ", ".join(f'"+f"(sum[{each}])' for each in range(count))
    taken, before, begin, end, given = "", "1", "", "", ""
    if arithmetic.parts > 1:
        taken, before, given = ", int more", "before", ', "r"(more)'
        begin, end = f"{{ .reg .pred before; setp.ne.b32 before, %{count + 2}, 0; ", " }"
    return (
        f"__device__ __forceinline__ void multiply_wide(float (&sum)[{count}], "
        f"unsigned long long rows,\n    unsigned long long columns{taken})\n{{\n"
        f'    asm volatile("{begin}wgmma.mma_async.sync.aligned.m64n{wide}k{step}'
        f'.f32.{kind}.{kind} "\n'
        f'        "{{{sums}}}, %{count}, %{count + 1}, {before}, 1, 1{more};{end}"\n'
        f'        : {held}\n        : "l"(rows), "l"(columns){given});\n}}'
    )
