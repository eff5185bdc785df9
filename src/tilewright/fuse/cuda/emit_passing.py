"""The text of kernels that pass words on."""

from __future__ import annotations

from tilewright.fuse.cuda.arriving import Arriving
from tilewright.fuse.cuda.behind import Behind
from tilewright.fuse.cuda.emit import activation, head, struct, value
from tilewright.fuse.cuda.emit_stack import TYPES
from tilewright.fuse.cuda.passing import Passing
from tilewright.fuse.cuda.pools import Pools
from tilewright.fuse.cuda.stack import Source
from tilewright.model.layers import AveragePool, Pixels
from tilewright.model.layers.elementwise import literal

WRITTEN_OUT, AT_ONCE = 40, 8  # places that are read; of more, so many of a column


def passing_text(plan: Passing, name: str, pixels: Pixels | None, source: Source) -> str:
    others = [f"other{number}" for number in range(1, len(plan.inputs))]
    each = f"size_t(blockIdx.x) * {plan.threads} + threadIdx.x, size_t(gridDim.x) * {plan.threads}"
    if isinstance(plan, Arriving):
        file, calls = "arriving.cuh", [f"    put_arrived<Layer>(images, results, count, {each});"]
    elif isinstance(plan, Pools):
        file, calls = "pools.cuh", [f"    put_pooled<Layer>(images, results, count, {each});"]
    else:
        file, calls = "behind.cuh", [
            f"    const word* const pictures[] = {{{', '.join(['images', *others])}}};",
            f"    put_behind<Layer>(pictures, results, count, {each});",
        ]  # fmt: skip
    lines = [
        f'extern "C" __global__ void __launch_bounds__({plan.threads}) {name}(',
        f"    const {TYPES[source]}* images, word* results, int count"
        + "".join(f", const word* {other}" for other in others)
        + ")",
        "{",
        *calls,
        "}",
        "",
    ]
    blocks = head(plan.arithmetic, "words.cuh", "passing.cuh", file)
    return "\n".join([blocks, layer(plan, pixels if source == "uint8" else None), *lines])


def layer(plan: Passing, pixels: Pixels | None = None) -> str:
    """Its constants; `pixels` say what bytes mean, where it reads these."""
    if isinstance(plan, Arriving):
        channels, height, width = plan.operation.source
        read: dict[str, int | str] = {
            "CHANNELS": channels, "PIXELS": height * width, "WORDS": plan.words,
            "AT_ONCE": plan.width, "TO": plan.to,
        }  # fmt: skip
        return "\n".join([*_tables(pixels), struct("Layer", read, _value(pixels))])
    after = activation("after", plan.operation.after)
    if isinstance(plan, Pools):
        return struct("Layer", _windows(plan), after)
    assert isinstance(plan, Behind)
    places = ", ".join(map(str, plan.begins))
    begins = (
        "static __device__ __forceinline__ constexpr int begins(int part) "
        f"{{ const int places[] = {{{places}}}; return places[part]; }}"
    )
    values: dict[str, int | str] = {
        "PARTS": len(plan.parts), "OUT_WORDS": plan.begins[-1], "WIDTH": plan.width,
        "PIXELS": plan.pixels, "TO": plan.to, "CHANGES": int(bool(plan.operation.after)),
    }  # fmt: skip
    return struct("Layer", values, begins, after)


def _tables(pixels: Pixels | None) -> list[str]:
    """What pixels mean, channel by channel: which channel it is, only the thread knows, and tables
    of its own would be on its stack."""
    if pixels is None or not pixels.specials:
        return []
    return [
        f"__device__ const float {name}[] = {{{', '.join(map(literal, values))}}};"
        for name, values in (("scales", pixels.scales), ("shifts", pixels.shifts))
    ]


def _value(pixels: Pixels | None) -> str:
    if pixels is None or not pixels.specials:
        return value(pixels)
    return (
        "static __device__ __forceinline__ float value(float x, int c) "
        "{ return fmaf(x, scales[c], shifts[c]); }"
    )


def _windows(plan: Pools) -> dict[str, int | str]:
    given = plan.layer
    (_, height, width), (_, out_y, out_x) = plan.operation.source, plan.operation.result
    average = isinstance(given, AveragePool)
    counts = isinstance(given, AveragePool) and given.count_padding
    all_places = plan.columns * given.size[0] <= WRITTEN_OUT
    return {
        "WORDS": plan.words, "AT_ONCE": plan.width, "HEIGHT": height, "WIDTH": width,
        "OUT_Y": out_y, "OUT_X": out_x, "TAPS_Y": given.size[0], "TAPS_X": given.size[1],
        "STRIDE_Y": given.stride[0], "STRIDE_X": given.stride[1], "TOP": given.padding[0],
        "LEFT": given.padding[1], "COUNTED_Y": given.padding[2], "COUNTED_X": given.padding[3],
        "COUNTS_PADDING": int(counts), "AVERAGE": int(average),
        "RUN": plan.run, "UNROLL_X": plan.columns if all_places else 1,
        "UNROLL_Y": min(given.size[0], AT_ONCE), "TO": plan.to,
    }  # fmt: skip
