"""The text of a kernel that puts channels behind each other."""

from __future__ import annotations

from tilewright.fuse.cuda.behind import Behind
from tilewright.fuse.cuda.emit import activation, head, struct


def behind_text(plan: Behind, name: str) -> str:
    others = [f"other{number}" for number in range(1, len(plan.parts))]
    lines = [
        f'extern "C" __global__ void __launch_bounds__({plan.threads}) {name}(',
        "    const word* images, word* results, int count"
        + "".join(f", const word* {each}" for each in others)
        + ")",
        "{",
        f"    const word* const pictures[] = {{images, {', '.join(others)}}};",
        "    put_behind<Layer>(pictures, results, count,",
        f"        size_t(blockIdx.x) * {plan.threads} + threadIdx.x, "
        f"size_t(gridDim.x) * {plan.threads});",
        "}",
        "",
    ]
    return "\n".join([head(plan.arithmetic, "words.cuh", "behind.cuh"), layer(plan), *lines])


def layer(plan: Behind) -> str:
    """Its constants."""
    places = ", ".join(map(str, plan.begins))
    begins = (
        "static __device__ __forceinline__ constexpr int begins(int part) "
        f"{{ const int places[] = {{{places}}}; return places[part]; }}"
    )
    values: dict[str, int | str] = {
        "PARTS": len(plan.parts), "OUT_WORDS": plan.begins[-1], "WIDTH": plan.width,
        "PIXELS": plan.pixels, "TO": plan.to, "CHANGES": int(bool(plan.operation.after)),
    }  # fmt: skip
    return struct("Layer", values, begins, activation("after", plan.operation.after))
