"""The text of a stack's kernel: its steps, as structs of constants and calls in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.emit import head, text
from tilewright.fuse.cuda.emit_repeats import Turn, lines_of, repeated
from tilewright.fuse.cuda.emit_structs import (
    Sums,
    alike_sums,
    declared,
    load_name,
    named_once,
    sums_of,
)
from tilewright.fuse.cuda.program import program
from tilewright.fuse.cuda.stack import Rows, Source, Stack
from tilewright.fuse.cuda.steps import (
    Arrived,
    Barrier,
    Blank,
    Border,
    Channels,
    Clear,
    Committed,
    Convolve,
    Each,
    FetchImage,
    FetchParameters,
    Fill,
    Given,
    Join,
    Outside,
    Part,
    Program,
    Softmax,
    Step,
    Target,
    Together,
    Windows,
)
from tilewright.model.layers import Pixels
from tilewright.model.layers.take import place_of

# Channels of pixels that a thread reads several of, from device memory, before it writes the first.
MOST_FROM_AFAR = 4
TYPES = {"uint8": "unsigned char", "float32": "float", "words": "word"}


def stack_text(plan: Stack, name: str, pixels: Pixels | None, source: Source) -> str:
    """The kernel's whole text; `source` is the type of what it reads."""
    return program_text(program(plan, pixels, source), name)


def program_text(made: Program, name: str) -> str:
    branching = any(isinstance(step, Channels | Join | Windows) for step in made.item)
    ahead = any(isinstance(step, Arrived) and step.ahead for step in made.item)
    blocks = ["words.cuh", *(["shared.cuh", "ahead.cuh"] if ahead else []), "sums.cuh",
              "pictures.cuh", *(["branches.cuh"] if branching else [])]  # fmt: skip
    parts = [head(made.arithmetic, *blocks)]
    if columns := _warpgroups(made):
        parts += [_multiply_wide(each, made.arithmetic) for each in columns]
        parts.append(text("warpgroups.cuh"))
    steps = named_once(made.item)
    parts += dict.fromkeys(text for step in steps for text in declared(step))
    looped = repeated(_turns(made, steps, alike_sums(steps)))
    if looped:
        parts.append(looped.table)
    item = looped.lines if looped else lines_of(_turns(made, steps, {}))
    parts.append(_kernel(made, name, item))
    return "\n".join(parts)


def _turns(made: Program, steps: Sequence[Step], alike: dict[Sums, list[int]]) -> list[Turn]:
    """A turn for each layer; what comes before them is one, too. Sums that are `alike` are called
    alike."""
    turns = [Turn([], [])]
    for step in steps:
        if isinstance(step, Border | Barrier | Outside | Arrived | Fill | FetchImage):
            turns[-1].after.extend(calls(made, step))
        elif isinstance(step, Convolve):
            layers = alike.get(sums_of(step), [step.index])
            turns.append(Turn(convolve_call(made, step, layers), []))
        else:
            turns.append(Turn(calls(made, step), []))
    return turns


def _warpgroups(made: Program) -> list[int]:
    """Columns of the sums that four warps compute together."""
    return sorted(
        {step.columns for step in made.item if isinstance(step, Convolve) and step.warpgroup}
    )


def _multiply_wide(columns: int, arithmetic: Arithmetic) -> str:
    """The instruction for so many columns: all of a lane's sums are its operands."""
    count = 4 * columns
    shape = f"m64n{8 * columns}" + ("k16.f32.f16.f16" if arithmetic.per_word == 2 else
                                    "k8.f32.tf32.tf32")  # fmt: skip
    sums, rows = (", ".join(f"%{at}" for at in each) for each in (
        range(count), range(count, count + 4)))  # fmt: skip
    # Add to the sums, change no sign; halves lie along the sum.
    how = "1, 1, 1, 0" if arithmetic.per_word == 2 else "1, 1, 1"
    outputs = ", ".join(f'"+f"(c[{at // 4}][{at % 4}])' for at in range(count))
    return "\n".join([
        "__device__ __forceinline__ void multiply_wide(",
        f"    float (&c)[{columns}][4], const Rows& a, unsigned long long b)",
        "{",
        f'    asm volatile("wgmma.mma_async.sync.aligned.{shape} {{{sums}}}, {{{rows}}}, "',
        f'        "%{count + 4}, {how};"',
        f"        : {outputs}",
        '        : "r"(a.even), "r"(a.odd), "r"(a.more_even), "r"(a.more_odd), "l"(b));',
        "}",
    ])  # fmt: skip


def _kernel(made: Program, name: str, item: list[str]) -> str:
    kind, threads = TYPES[made.source], made.group_threads
    uniform = [f"threadIdx.x / {threads}", "thread / 32"]
    if _warpgroups(made):
        # The compiler must know that warps do not part, or it waits for every product.
        uniform = [f"__shfl_sync(0xffffffff, {each}, 0)" for each in uniform]
    more = [f", const {TYPES[each]}* other{at}" for at, each in enumerate(made.more, 1)]
    lines = [
        f'extern "C" __global__ void __launch_bounds__({made.threads}, 1) {name}(',
        f"    const {kind}* images, word* results, const word* parameters, const int* tables,",
        f"    int count{''.join(more)})",
        "{",
        "    extern __shared__ uint4 memory[];",
        "    word* shared = reinterpret_cast<word*>(memory);",
        f"    const int group = {uniform[0]};",
        f"    int thread = threadIdx.x % {threads};",
        f"    const int warp = {uniform[1]};",
        f"    word* own = shared + {made.shared_words} + group * {made.group_words};",
    ]
    for step in made.once:
        if isinstance(step, FetchImage):
            lines.append(f"    {kind}* staged = reinterpret_cast<{kind}*>(own + {step.at});")
        lines += [f"    {line}" for line in calls(made, step)]
        if isinstance(step, FetchParameters) and step.at == 0:
            lines += [
                f"    const int step = gridDim.x * {made.groups};",
                "    int item = blockIdx.x + gridDim.x * group;",
            ]
    if any(isinstance(step, Together) for step in made.item):
        lines.append("    int turn = 0;")
    lines.append("    for (; item < count; item += step) {")
    lines += [f"        {line}" for line in _begin(made)]
    lines += [f"        {line}" for line in item]
    return "\n".join([*lines, "    }", "}", ""])


def _begin(made: Program) -> list[str]:
    """Which item it is: an image or a strip, and where its results go."""
    lines, image, first = [], "item", "0"
    if made.strip is not None:
        starts = made.strip.starts
        height = starts[1] if len(starts) > 1 else 0
        image, first = "image", f"start / {made.strip.unit} * {made.result_row}"
        lines = [
            f"const int image = item / {len(starts)};",
            f"const int start = min(item % {len(starts)} * {height}, {starts[-1]});",
        ]
    if made.panels:
        return [*lines, f"const InPanels out(results, {made.result_words}, {image}, {first});"]
    out = f"word* out = results + size_t({made.result_words}) * {image}"
    return [*lines, f"{out} + {first};" if made.strip else f"{out};"]


def calls(made: Program, step: Step | Blank) -> list[str]:
    """A step's lines inside the kernel."""
    match step:
        case Clear():
            return [
                f"for (int i = thread; i < {step.words}; i += {step.threads})",
                "    own[i] = 0;",
            ]
        case FetchParameters():
            if step.at:
                places = f"shared + {step.at}, parameters + {step.at}, {_barrier(made)}"
                return [f"fetch_ahead<{step.bytes}, {step.threads}>({places});"]
            return [f"fetch<{step.bytes}, {step.threads}>(shared, parameters, threadIdx.x);"]
        case FetchImage():
            item = "item + step" if step.ahead else "item"
            which = f"({item})" if step.ahead else item
            return [
                f"if ({item} < count)",
                f"    fetch<{step.bytes}, {step.threads}>(staged, "
                f"images + size_t({made.image_size}) * {which}, thread);",
            ]
        case Committed():
            return ["commit_fetches();"]
        case Arrived():
            visible = ["fetched_for_all();"] if step.matrices else []
            if step.ahead:
                return [f"fetched_ahead({_barrier(made)});", *visible]
            return ["fetched_but_last();" if step.but_last else "fetched();", *visible]
        case Barrier():
            if not step.block and step.threads == 32:
                return ["__syncwarp();"]
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
            inside = [f"    {line}" for each in step.steps for line in calls(made, each)]
            return [f"if ({first} < 0 || {first} > {last}) {{", *inside, "}"]
        case Convolve():
            return convolve_call(made, step, [step.index])
        case Channels():
            weights = "shared" if step.weights_shared else "parameters"
            return [
                f"channels<Layer{step.index}>(own + {step.at}, "
                f"reinterpret_cast<const float*>({weights} + {step.weights}), "
                f"reinterpret_cast<const float*>(shared + {step.bias}), "
                f"{_place(step.target)}, thread);"
            ]
        case Windows():
            first, target = _first_row(step.rows) if step.rows else "0", _place(step.target)
            source = _source(made, step)
            return [f"windows<Layer{step.index}>({source}, {target}, {first}, thread);"]
        case Join():
            return [
                f"join<Layer{step.index}>([&](int c, int y, int x) {{",
                *(f"    {line}" for line in _joined(made, step)),
                f"}}, {_place(step.target)}, thread);",
            ]
        case Each():
            target = _place(step.target)
            return [f"each<Layer{step.index}>({_source(made, step)}, {target}, thread);"]
        case Softmax():
            return _softmax(made, step)
        case Together():
            inside = [f"    {line}" for each in step.steps for line in calls(made, each)]
            test = f"if (++turn == {step.most} || item + step >= count) {{"
            return [test, *inside, "    turn = 0;", "}"]
        case unknown:
            assert_never(unknown)


def _barrier(made: Program) -> str:
    """Where the copy of parameters ahead arrives: behind everything else."""
    return f"shared + {made.shared_words + made.groups * made.group_words}"


def convolve_call(made: Program, step: Convolve, alike: list[int]) -> list[str]:
    """The call for sums of any of the layers that are `alike` in them, and which of them it is."""
    weights = "shared" if step.weights_shared else "parameters"
    name = "convolve_wide" if step.warpgroup else "convolve"
    added, which = _added(made, step), ""
    if len(alike) > 1:
        added, which = added or ", own + 0", f", {alike.index(step.index)}"
    return [
        f"{name}<{', '.join(f'Layer{each}' for each in alike)}>(own + {step.at}, "
        f"{weights} + {step.weights}, reinterpret_cast<const float*>(shared + {step.bias}), "
        f"tables + {step.tables}, {_place(step.target)}, warp{added}{which});"
    ]


def _place(target: Target) -> str:
    if target.at is None:
        return "out"
    return f"own + {target.at}" + (f" + turn * {target.apart}" if target.apart else "")


def _softmax(made: Program, step: Softmax) -> list[str]:
    scores = f"softmax<{step.size}>(reinterpret_cast<const float*>(own + {step.at}"
    if step.apart:
        image = f"size_t({made.result_words}) * (item - (turn - 1 - k) * step)"
        return [
            f"for (int k = warp; k < turn; k += {made.warps})",
            f"    {scores} + k * {step.apart}), reinterpret_cast<float*>(results + {image}));",
        ]
    to = "out" if step.target is None else f"own + {step.target}"
    return ["if (warp == 0)", f"    {scores}), reinterpret_cast<float*>({to}));"]


def _pointer(made: Program, given: Given | None) -> str:
    """Where an image begins that is given to the kernel; None: the first of its inputs."""
    image = "image" if made.strip else "item"
    if given is None or given.number == 0:
        return f"images + size_t({made.image_size}) * {image}"
    return f"other{given.number} + size_t({given.size}) * {image}"


def _source(made: Program, step: Each | Windows) -> str:
    return f"own + {step.at}" if step.given is None else _pointer(made, step.given)


def _added(made: Program, step: Convolve) -> str:
    """The last argument of a convolution, if there is something to add."""
    if step.added is None:
        return ""
    if step.added.given is None:
        return f", own + {step.added.at}"
    pointer = _pointer(made, step.added.given)
    return f", {pointer}" + (f" + start * {step.added.row}" if made.strip else "")


def _joined(made: Program, step: Join) -> list[str]:
    """How two channels of a join are found: together, if those of all parts lie so."""
    if all(_in_pairs(part) for part in step.parts):
        return _found(step, _values(made, step, "two"))
    return [
        "const auto value = [&](int c, int y, int x) {",
        *(f"    {line}" for line in _values(made, step, "one")),
        "};",
        "return make_float2(value(c, y, x), "
        f"c + 1 < Layer{step.index}::FILTERS ? value(c + 1, y, x) : 0.0f);",
    ]


def _found(step: Join, values: list[str]) -> list[str]:
    """The same; of several pictures behind each other that lie alike, first where it is. What is
    read in branches is waited for in each of them: of three pictures in fp16 that took 515 us, and
    219 in TF32 (160 channels of 17 x 17, 1,000 images, H200, 2026-11-19)."""
    kinds = {(part.at is None, part.floats) for part in step.parts}
    if step.how != "behind" or len(kinds) > 1:
        return values
    *others, last = values
    places = [each.replace("return two<", "place = place_of_two<") for each in others]
    return [
        f"const word* {last.replace('return two<', 'place = place_of_two<')}",
        *places[::-1],
        f"return two_at<Layer{step.index}Part0>(place);",
    ]


def _in_pairs(part: Part) -> bool:
    """Whether two channels of the results are such of this part, or those of another one."""
    return not (part.planes or part.flat) and part.reach != "place" and part.channels % 2 == 0


def _values(made: Program, step: Join, how: str) -> list[str]:
    """One value of a join, or two."""
    values, before = [], 0
    for number, part in enumerate(step.parts):
        name = f"Layer{step.index}Part{number}"
        channel = f"c - {before}" if before else "c"
        place = {"value": f"{channel}, y, x", "channel": "c, 0, 0", "place": "0, y, x"}[part.reach]
        if part.chosen is not None:
            rows, columns = part.chosen
            place = f"c, {place_of(rows, 'y')}, {place_of(columns, 'x')}"
        if part.flat:
            # All values are counted, channel by channel.
            own = "c" if part.reach == "channel" else (
                f"(({channel}) * {step.out_y} + y) * {step.out_x} + x"
            )  # fmt: skip
            height, width = part.height, part.width
            place = f"({own}) / {height * width}, ({own}) / {width} % {height}, ({own}) % {width}"
        pointer = f"own + {part.at}" if part.at is not None else _pointer(made, part.given)
        values.append(f"{'one_of_planes' if part.planes else how}<{name}>({pointer}, {place})")
        if step.how == "behind":
            before += part.features // (step.out_y * step.out_x)
            values[-1] = f"if (c < {before}) return {values[-1]};"
    if step.how != "behind":
        sign = " * " if step.how == "multiplied" else " + "
        return [f"return {sign.join(values)};"]
    last = values[-1].partition(" return ")[2]
    return [*values[:-1], f"return {last}"]


def _fill(made: Program, step: Fill) -> str:
    source = "staged" if step.staged is not None else _pointer(made, step.given)
    match step.form:
        case "threes":
            return f"fill_threes<{load_name(step)}>({source}, own + {step.at}, thread);"
        case "fours":
            fetched = "true" if step.staged is not None else "false"
            return f"fill_fours<{load_name(step)}, {fetched}>({source}, own + {step.at}, thread);"
        case "values":
            far = step.staged is None and step.channels <= MOST_FROM_AFAR
            name = f"fill{'_from_afar' * far}<{load_name(step)}>"
        case "words":
            name = f"fill_words<{load_name(step)}>"
        case unknown:
            assert_never(unknown)
    row = _first_row(step.rows) if step.rows else "0"
    return f"{name}({source}, own + {step.at}, {row}, thread);"


def _first_row(rows: Rows) -> str:
    return f"start * {rows.stride} - {rows.padding}"
