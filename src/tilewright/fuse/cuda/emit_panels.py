"""The text of kernels for fully connected layers in panels."""

from __future__ import annotations

from typing import assert_never

from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.emit import activation, head, struct, text, value
from tilewright.fuse.cuda.panels import CHUNK, PANEL, Few, How, Into, Many, Panels
from tilewright.fuse.cuda.stack import Source
from tilewright.model.layers import Pixels

TYPES = {"uint8": "unsigned char", "float32": "float", "words": "word", "panels": "uint4"}


def panels_text(plan: Panels, how: How, name: str, pixels: Pixels | None, source: Source) -> str:
    """One of a plan's kernels; `source` is what it reads."""
    read = "panels" if isinstance(how, Many) else source
    values = _constants(plan)
    wide = how.wide if isinstance(how, Many) else PANEL
    match how:
        case Few():
            values |= {"TILES": how.tiles, "COLUMNS": how.columns, "WARPS": how.warps,
                       "UNROLL": how.unroll, "ROWS": how.rows, "MANY": int(how.many),
                       "BY_OUTPUT": int(not plan.arithmetic.tensor and not how.many)}  # fmt: skip
            body = _few(plan, how)
        case Many():
            values |= {"PANELS": how.panels, "WIDE": how.wide, "STAGES": how.stages,
                       "SPLITS": how.splits, "PARTS": how.parts,
                       "FETCHES": int(how.fetches)}  # fmt: skip
            body = _many(how)
        case Into():
            body = ["    into_panels<Layer>(features, reinterpret_cast<uint4*>(results), count);"]
        case unknown:
            assert_never(unknown)
    layer = plan.layer
    parts = [
        head(plan.arithmetic, "stack.cuh"),
        _wide(plan.arithmetic, wide) if plan.arithmetic.tensor else "",
        text("panels.cuh"),
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
    ]  # fmt: skip
    return "\n".join(parts)


def _bounds(plan: Panels, how: How) -> str:
    threads = plan.threads_of(how)
    if not isinstance(how, Many):
        return f"__launch_bounds__({threads})"
    cluster = f"__cluster_dims__(1, 1, {how.parts}) " if how.parts > 1 else ""
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


def _many(how: Many) -> list[str]:
    return [
        f"    __shared__ unsigned long long barriers[{2 * how.stages}];",
        f"    const int panel = blockIdx.y * {how.panels}, outputs = blockIdx.x * {how.wide};",
        "    Ring<Layer> ring;",
        "    ring.begin(memory, barriers, features, weights, panel, "
        f"(count + {PANEL - 1}) / {PANEL}, outputs);",
        "    if (ring.fetched_all())",
        "        return;",
        f"    float sum[{how.wide // 2}];",
        "    begin_panels<Layer>(sum, bias, outputs);",
        "    multiply_panels<Layer>(sum, ring, memory);",
        f"    put_panels<Layer>(sum, results, bias, panel * {PANEL}, outputs, count);",
    ]


def _wide(arithmetic: Arithmetic, wide: int) -> str:
    """The tensor cores' instruction for 64 rows and so many outputs, over two pieces of the sum."""
    kind, step, more = ("f16", 16, ", 0, 0") if arithmetic.per_word == 2 else ("tf32", 8, "")
    count = wide // 2
    sums = ", ".join(f"%{each}" for each in range(count))
    held = ", ".join(f'"+f"(sum[{each}])' for each in range(count))
    return (
        f"__device__ __forceinline__ void multiply_wide(float (&sum)[{count}], "
        "unsigned long long rows,\n    unsigned long long columns)\n{\n"
        f'    asm volatile("wgmma.mma_async.sync.aligned.m64n{wide}k{step}.f32.{kind}.{kind} "\n'
        f'        "{{{sums}}}, %{count}, %{count + 1}, 1, 1, 1{more};"\n'
        f'        : {held}\n        : "l"(rows), "l"(columns));\n}}'
    )
