"""The text of a stack's kernel: constants for the building blocks, and the calls in order."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from tilewright.fuse.cuda.emit import activation, head, struct
from tilewright.fuse.cuda.pictures import runs
from tilewright.fuse.cuda.stack import Phase, Rows, Stack
from tilewright.model.layers import Pixels

POOLS: dict[str, int | str] = {"": 0, "max": "TW_POOL_MAX", "average": "TW_POOL_AVERAGE"}
TYPES = {"uint8": "unsigned char", "float32": "float", "words": "word"}


def stack_text(plan: Stack, name: str, pixels: Pixels | None, source: str) -> str:
    """The kernel's whole text; `source` is the type of what it reads."""
    if source != "uint8":
        plan = replace(plan, staged_bytes=0)
    parts = [head(plan.arithmetic, "stack.cuh"), _load(plan, pixels, source)]
    parts += [_phase(plan, index) for index in range(len(plan.phases))]
    parts.append(_kernel(plan, name, source))
    return "\n".join(parts)


def _load(plan: Stack, pixels: Pixels | None, source: str) -> str:
    picture, strip = plan.phases[0].source, plan.strip
    constants: dict[str, int | str] = {
        "THREADS": 32 * plan.warps,
        "CHANNELS": picture.channels,
        "HEIGHT": picture.height,
        "WIDTH": picture.width,
        "SOURCE_HEIGHT": strip.source[1] if strip else picture.height,
        "WHOLE": int(strip is None),
        "LEFT": picture.padding[1],
        "PITCH": picture.pitch,
        "WORDS": picture.words,
        "ROW": picture.row,
        "TIGHT": int(picture.tight),
        "COPY": picture.copy,
        "FLOATS": int(picture.floats),
        "ROUND": int(plan.phases[0].shares is not None),
    }
    if source == "uint8":
        assert pixels
        value = f"fmaf(x, {pixels.scale:.9e}f, {pixels.shift:.9e}f)"
    else:
        value = "x"
    convert = f"static __device__ __forceinline__ float value(float x) {{ return {value}; }}"
    return struct("Load", constants, convert)


def _phase(plan: Stack, index: int) -> str:
    phase = plan.phases[index]
    texts = [struct(f"Border{index}", _border(plan, index))]
    if plan.strip and index > 0:
        constants: dict[str, int | str] = {
            "THREADS": 32 * plan.warps, "HEIGHT": phase.source.height, "ROW": phase.source.row,
            "SOURCE_HEIGHT": plan.strip.pictures[index].height,
        }  # fmt: skip
        texts.append(struct(f"Blank{index}", constants))
    match phase.operation.kind:
        case "sum":
            texts.append(_sum(plan, index, phase))
        case "each":
            texts.append(_each(plan, index, phase))
        case "softmax":
            pass  # needs its size only
        case unknown:
            assert_never(unknown)
    return "\n".join(texts)


def _border(plan: Stack, index: int) -> dict[str, int | str]:
    picture = plan.phases[index].source
    unit = picture.channels if picture.tight else picture.pitch
    left = picture.padding[1]
    gap, after = plan.gaps(index)
    return {
        "THREADS": 32 * plan.warps,
        "ROW": picture.row,
        "COPY": picture.copy,
        "TOP": picture.padding[0],
        "HEIGHT": picture.height,
        "LEFT": left * unit,
        "RIGHT": (left + picture.width) * unit,
        "WIDTH": picture.width,
        "PITCH": picture.pitch,
        "WORDS": picture.words,
        "GAP": gap,
        "AFTER": after,
        "DIRTY": plan.dirty(index),
    }


def _target(phase: Phase) -> dict[str, int | str]:
    sink, filters = phase.sink, phase.operation.result[0]
    # Two channels, or eight, are written at once where they always lie on such a boundary.
    steps = (filters, sink.row, sink.pixel, sink.place(0, 0))
    wide = (
        phase.shares is not None
        and phase.target is None
        and sink.to == "TW_TO_HALVES"
        and phase.shares.columns % 4 == 0
        and filters % 32 == 0
        and 8 * phase.shares.all_columns == filters
    )
    return {
        "PAIRED": int(all(step % 2 == 0 for step in steps)),
        "WIDE": int(wide),
        "FILTERS": phase.operation.result[0],
        "TO": phase.sink.to,
        "PLANE": phase.sink.plane,
        "OUT_ROW": phase.sink.row,
        "OUT_PIXEL": phase.sink.pixel,
        "ORIGIN": phase.sink.place(0, 0),
    }


def _sum(plan: Stack, index: int, phase: Phase) -> str:
    shares, operation = phase.shares, phase.operation
    assert shares
    count, full, half = runs(plan.arithmetic, phase.source, operation.window.taps[1], shares.reads)
    constants: dict[str, int | str] = {
        "WARPS": plan.warps,
        "TILES": shares.tile_count,
        "UNITS": shares.units,
        "ROWS": shares.rows,
        "COLUMNS": shares.columns,
        "ALL_COLUMNS": shares.all_columns,
        "TAPS_Y": operation.window.taps[0],
        "STRIDE_Y": operation.window.stride[0],
        "INPUT_ROWS": shares.input_rows,
        "ROW": phase.source.row,
        "PITCH": phase.source.pitch,
        "RUNS": count,
        "FULL": full,
        "HALF": half,
        "ROWS_FIRST": int(shares.rows_first),
        # Steps written out one after the other are 5 to 12 % faster on tensor cores; as
        # multiply-adds they are so long that groups in different layers run out of instruction
        # cache: 20 to 46 % slower (cifar10, H200, 2026-11-15).
        "UNROLL": max(1, count * full) if plan.arithmetic.tensor else 1,
        "POOL": POOLS[operation.pool],
        **_target(phase),
    }
    # Activations never decrease: after a maximum they give what they would have given before it.
    before, after = operation.before, operation.after
    if not operation.pool:
        before, after = (), before + after
    return struct(
        f"Layer{index}", constants, activation("before", before), activation("after", after)
    )


def _each(plan: Stack, index: int, phase: Phase) -> str:
    operation = phase.operation
    constants: dict[str, int | str] = {
        "THREADS": 32 * plan.warps,
        "ROW": phase.source.row,
        "PITCH": phase.source.pitch,
        "FLOATS": int(phase.source.floats),
        "TAPS_Y": operation.window.taps[0],
        "TAPS_X": operation.window.taps[1],
        "STRIDE_Y": operation.window.stride[0],
        "STRIDE_X": operation.window.stride[1],
        "AVERAGE": int(operation.pool == "average"),
        "OUT_Y": operation.result[1],
        "OUT_X": operation.result[2],
        **_target(phase),
    }
    return struct(f"Layer{index}", constants, activation("after", operation.after))


def _kernel(plan: Stack, name: str, source: str) -> str:
    kind, threads = TYPES[source], 32 * plan.warps
    channels, height, width = plan.strip.source if plan.strip else plan.operations[0].source
    size = height * width * (plan.phases[0].source.words if source == "words" else channels)
    lines = [
        f'extern "C" __global__ void __launch_bounds__({plan.threads}, 1) {name}(',
        f"    const {kind}* images, word* results, const word* parameters, const int* tables,",
        "    int count)",
        "{",
        "    extern __shared__ uint4 memory[];",
        "    word* shared = reinterpret_cast<word*>(memory);",
        f"    const int group = threadIdx.x / {threads}, thread = threadIdx.x % {threads};",
        "    const int warp = thread / 32;",
        f"    word* own = shared + {plan.shared_words} + group * {plan.group_words};",
        f"    for (int i = thread; i < {plan.group_words}; i += {threads})",
        "        own[i] = 0;",
        f"    fetch<{4 * plan.shared_words}, {plan.threads}>(shared, parameters, threadIdx.x);",
        f"    const int step = gridDim.x * {plan.groups};",
        "    int item = blockIdx.x + gridDim.x * group;",
    ]
    ahead = (
        f"fetch<{plan.staged_bytes}, {threads}>(staged, images + size_t({size}) * {{}}, thread);"
    )
    if plan.staged_bytes:
        lines += [
            f"    {kind}* staged = reinterpret_cast<{kind}*>(own + {sum(plan.arenas)});",
            "    if (item < count)",
            f"        {ahead.format('item')}",
        ]
    lines += [
        "    fetched();",
        "    __syncthreads();",
        "    for (; item < count; item += step) {",
    ]
    inside = _inside(plan, size, source, ahead)
    lines += [f"        {line}" for line in inside]
    return "\n".join([*lines, "    }", "}", ""])


def _inside(plan: Stack, size: int, source: str, ahead: str) -> list[str]:
    """What happens to one image, or strip of one."""
    threads = 32 * plan.warps
    first = plan.phases[0].source
    together = f"together<{threads}>(group);"
    lines = []
    row, offset = "0", ""
    if plan.strip:
        parts, strip = len(plan.strip.starts), plan.strip
        height, last = (strip.starts[1] if parts > 1 else 0), strip.starts[-1]
        lines += [
            f"const int image = item / {parts};",
            f"const int start = min(item % {parts} * {height}, {last});",
        ]
        row = _first_row(strip.pictures[0])
        offset = f" + start / {strip.unit} * {plan.phases[-1].sink.row}"
    image = "image" if plan.strip else "item"
    lines.append(f"word* out = results + size_t({plan.result_words}) * {image}{offset};")
    tile = f"own + {plan.place(0) + first.padding[0] * first.row}"
    if plan.staged_bytes:
        by_fours = first.tight and first.channels == 3 and first.width % 4 == 0
        fill = "fill_threes<Load>(staged" if by_fours else "fill<Load>(staged"
        lines += ["fetched();", together]
    else:
        fill = "fill_words<Load>" if source == "words" else "fill<Load>"
        fill += f"(images + size_t({size}) * {image}"
    start = "" if fill.startswith("fill_threes") else f", {row}"
    lines.append(f"{fill}, {tile}{start}, thread);")
    if plan.bordered(0):
        lines.append(_clear(plan, 0))
    lines.append(together)
    if plan.staged_bytes:
        lines += ["if (item + step < count)", f"    {ahead.format('(item + step)')}"]
    _, tables = plan.tables
    for index, phase in enumerate(plan.phases):
        source_at = f"own + {plan.place(index)}"
        after = index + 1
        target = "out" if phase.target is None else f"own + {plan.place(after)}"
        match phase.operation.kind:
            case "sum":
                layer, words = phase.operation.names[0], plan.parameter_words
                weights = "shared" if phase.shared else "parameters"
                lines.append(
                    f"convolve<Layer{index}>({source_at}, {weights} + {words[f'{layer}.weight']}, "
                    f"reinterpret_cast<const float*>(shared + {words[f'{layer}.bias']}), "
                    f"tables + {tables[layer]}, {target}, warp);"
                )
            case "each":
                lines.append(f"each<Layer{index}>({source_at}, {target}, thread);")
            case "softmax":
                lines += [
                    "if (warp == 0)",
                    f"    softmax<{phase.operation.source[2]}>(reinterpret_cast<const float*>"
                    f"({source_at}), reinterpret_cast<float*>({target}));",
                ]
            case unknown:
                assert_never(unknown)
        if phase.target is not None and plan.bordered(after):
            lines.append(_clear(plan, after))
        lines.append(together)
        if phase.target is not None and plan.strip:
            rows, tall = plan.strip.pictures[after], phase.target.height
            lines += [
                f"if ({_first_row(rows)} < 0 || {_first_row(rows)} > {rows.height - tall}) {{",
                f"    blank<Blank{after}>({target}, {_first_row(rows)}, thread);",
                f"    {together}",
                "}",
            ]
    return lines


def _first_row(rows: Rows) -> str:
    return f"start * {rows.stride} - {rows.padding}"


def _clear(plan: Stack, index: int) -> str:
    unit = "unsigned short" if plan.phases[index].source.tight else "word"
    return f"border<Border{index}, {unit}>(own + {plan.place(index)}, thread);"
