"""The text of a stack's kernel: its steps, as structs of constants and calls in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from tilewright.fuse.cuda.emit import activation, constants, head, struct
from tilewright.fuse.cuda.program import program
from tilewright.fuse.cuda.stack import Rows, Source, Stack
from tilewright.fuse.cuda.steps import (
    Arrived,
    Barrier,
    Blank,
    Border,
    Clear,
    Convolve,
    Each,
    FetchImage,
    FetchParameters,
    Fill,
    Outside,
    Program,
    Softmax,
    Step,
)
from tilewright.model.layers import Pixels

POOLS: dict[str, int | str] = {
    "": 0,
    "max": "TW_POOL_MAX",
    "max of each": "TW_POOL_MAX_OF_EACH",
    "average": "TW_POOL_AVERAGE",
}
TYPES = {"uint8": "unsigned char", "float32": "float", "words": "word"}


def stack_text(plan: Stack, name: str, pixels: Pixels | None, source: Source) -> str:
    """The kernel's whole text; `source` is the type of what it reads."""
    return program_text(program(plan, pixels, source), name)


def program_text(made: Program, name: str) -> str:
    parts = [head(made.arithmetic, "stack.cuh")]
    parts += [text for step in _flat(made.item) for text in _struct(step)]
    parts.append(_kernel(made, name))
    return "\n".join(parts)


def _flat(steps: tuple[Step, ...]) -> Iterator[Step | Blank]:
    """All steps, with those that only some strips do."""
    for step in steps:
        if isinstance(step, Outside):
            yield from step.steps
        else:
            yield step


def _struct(step: Step | Blank) -> list[str]:
    """A step's constants, if it has any, as the building blocks take them."""
    match step:
        case Fill():
            return [struct("Load", constants(step), _value(step.pixels))]
        case Border():
            return [struct(f"Border{step.index}", constants(step))]
        case Blank():
            return [struct(f"Blank{step.index}", constants(step))]
        case Convolve():
            values = {**constants(step), "POOL": POOLS[step.pool], **constants(step.target)}
            functions = activation("before", step.before), activation("after", step.activations)
            return [struct(f"Layer{step.index}", values, *functions)]
        case Each():
            values = {**constants(step), **constants(step.target)}
            return [struct(f"Layer{step.index}", values, activation("after", step.activations))]
    return []


def _value(pixels: Pixels | None) -> str:
    """What becomes of a pixel as it is read."""
    value = f"fmaf(x, {pixels.scales[0]:.9e}f, {pixels.shifts[0]:.9e}f)" if pixels else "x"
    return f"static __device__ __forceinline__ float value(float x) {{ return {value}; }}"


def _kernel(made: Program, name: str) -> str:
    kind, threads = TYPES[made.source], made.group_threads
    lines = [
        f'extern "C" __global__ void __launch_bounds__({made.threads}, 1) {name}(',
        f"    const {kind}* images, word* results, const word* parameters, const int* tables,",
        "    int count)",
        "{",
        "    extern __shared__ uint4 memory[];",
        "    word* shared = reinterpret_cast<word*>(memory);",
        f"    const int group = threadIdx.x / {threads}, thread = threadIdx.x % {threads};",
        "    const int warp = thread / 32;",
        f"    word* own = shared + {made.shared_words} + group * {made.group_words};",
    ]
    for step in made.once:
        if isinstance(step, FetchImage):
            lines.append(f"    {kind}* staged = reinterpret_cast<{kind}*>(own + {step.at});")
        lines += [f"    {line}" for line in _call(made, step)]
        if isinstance(step, FetchParameters):
            lines += [
                f"    const int step = gridDim.x * {made.groups};",
                "    int item = blockIdx.x + gridDim.x * group;",
            ]
    lines.append("    for (; item < count; item += step) {")
    lines += [f"        {line}" for line in _begin(made)]
    lines += [f"        {line}" for step in made.item for line in _call(made, step)]
    return "\n".join([*lines, "    }", "}", ""])


def _begin(made: Program) -> list[str]:
    """Which item it is: an image or a strip, and where its results go."""
    out = f"word* out = results + size_t({made.result_words}) * "
    if made.strip is None:
        return [f"{out}item;"]
    starts = made.strip.starts
    height = starts[1] if len(starts) > 1 else 0
    return [
        f"const int image = item / {len(starts)};",
        f"const int start = min(item % {len(starts)} * {height}, {starts[-1]});",
        f"{out}image + start / {made.strip.unit} * {made.result_row};",
    ]


def _call(made: Program, step: Step | Blank) -> list[str]:
    """A step's lines inside the kernel."""
    match step:
        case Clear():
            return [
                f"for (int i = thread; i < {step.words}; i += {step.threads})",
                "    own[i] = 0;",
            ]
        case FetchParameters():
            return [f"fetch<{step.bytes}, {step.threads}>(shared, parameters, threadIdx.x);"]
        case FetchImage():
            item = "item + step" if step.ahead else "item"
            which = f"({item})" if step.ahead else item
            return [
                f"if ({item} < count)",
                f"    fetch<{step.bytes}, {step.threads}>(staged, "
                f"images + size_t({made.image_size}) * {which}, thread);",
            ]
        case Arrived():
            return ["fetched();"]
        case Barrier():
            return ["__syncthreads();" if step.block else f"together<{step.threads}>(group);"]
        case Fill():
            return [_fill(made, step)]
        case Border():
            unit = "unsigned short" if step.tight else "word"
            call = f"border<Border{step.index}, {unit}>(own + {step.at}, thread);"
            return [call] if step.needed else []
        case Blank():
            first = _first_row(step.rows)
            return [f"blank<Blank{step.index}>(own + {step.at}, {first}, thread);"]
        case Outside():
            first, last = _first_row(step.rows), step.rows.height - step.height
            inside = [f"    {line}" for each in step.steps for line in _call(made, each)]
            return [f"if ({first} < 0 || {first} > {last}) {{", *inside, "}"]
        case Convolve():
            weights = "shared" if step.weights_shared else "parameters"
            return [
                f"convolve<Layer{step.index}>(own + {step.at}, {weights} + {step.weights}, "
                f"reinterpret_cast<const float*>(shared + {step.bias}), "
                f"tables + {step.tables}, {_place(step.target.at)}, warp);"
            ]
        case Each():
            target = _place(step.target.at)
            return [f"each<Layer{step.index}>(own + {step.at}, {target}, thread);"]
        case Softmax():
            return [
                "if (warp == 0)",
                f"    softmax<{step.size}>(reinterpret_cast<const float*>(own + {step.at}), "
                f"reinterpret_cast<float*>({_place(step.target)}));",
            ]
        case unknown:
            assert_never(unknown)


def _place(at: int | None) -> str:
    return "out" if at is None else f"own + {at}"


def _fill(made: Program, step: Fill) -> str:
    image = "image" if made.strip else "item"
    source = (
        "staged" if step.staged is not None else f"images + size_t({made.image_size}) * {image}"
    )
    match step.form:
        case "threes":
            return f"fill_threes<Load>({source}, own + {step.at}, thread);"
        case "values":
            name = "fill<Load>"
        case "words":
            name = "fill_words<Load>"
        case unknown:
            assert_never(unknown)
    row = _first_row(step.rows) if step.rows else "0"
    return f"{name}({source}, own + {step.at}, {row}, thread);"


def _first_row(rows: Rows) -> str:
    return f"start * {rows.stride} - {rows.padding}"
