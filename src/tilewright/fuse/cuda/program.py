"""A stack's plan as the list of steps that its kernel is."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from tilewright.fuse.cuda.channels import outputs_of_a_thread
from tilewright.fuse.cuda.operations import Operation, Window
from tilewright.fuse.cuda.pictures import plain
from tilewright.fuse.cuda.stack import Phase, Source, Stack, Taken
from tilewright.fuse.cuda.steps import (
    Added,
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
    How,
    Join,
    Outside,
    Part,
    PoolStep,
    Program,
    Softmax,
    Step,
    Target,
    Together,
    Wide,
    Windows,
)
from tilewright.fuse.cuda.sums import offset, pairs_of, runs_of
from tilewright.fuse.cuda.written_out import edges_of, unrolled
from tilewright.model.layers import (
    Add,
    AveragePool,
    Convolution,
    Elementwise,
    Layer,
    Multiply,
    Pixels,
    Pooling,
    Shape,
    Take,
)
from tilewright.model.layers.multiply import Reach

# How values of several pictures are joined, if not one behind the other.
HOW: dict[type[Layer], How] = {Add: "added", Multiply: "multiplied", Take: "chosen"}


def program(plan: Stack, pixels: Pixels | None, source: Source) -> Program:
    """`pixels` say what bytes mean; `source` is the type of what the kernel reads."""
    given = _given(plan, source)
    staged = plan.staged_bytes if source == "uint8" else 0
    return Program(
        arithmetic=plan.arithmetic,
        source=source,
        threads=plan.threads,
        groups=plan.groups,
        warps=plan.warps,
        shared_words=plan.shared_words,
        group_words=plan.arena_words + -(-staged // 16) * 4,
        image_size=given[0].size,
        result_words=plan.result_words,
        result_row=plan.phases[-1].sink.row,
        panels=plan.gives == "panels",
        strip=plan.strip,
        once=_once(plan, staged),
        item=_item(plan, pixels, given, staged),
        more=tuple(each.source for each in given[1:]),
    )


def _given(plan: Stack, source: Source) -> list[Given]:
    """A kernel's inputs; `source` is the first one's type."""
    found = []
    for number, (form, shape) in enumerate(zip(plan.all_given, plan.input_shapes, strict=True)):
        kind: Source = source if number == 0 else "words" if form == "words" else "float32"
        channels, height, width = shape
        each = plan.arithmetic.words(channels) if kind == "words" else channels
        found.append(Given(number, kind, height * width * each))
    return found


def _once(plan: Stack, staged: int) -> tuple[Step, ...]:
    threads = 32 * plan.warps
    late = plan.late_words
    early = plan.shared_words - late
    steps: list[Step] = [FetchParameters(4 * early, plan.threads)]
    if staged:
        steps.append(FetchImage(plan.arena_words, staged, threads, ahead=False))
    if late:
        steps += [Committed(), FetchParameters(4 * late, plan.threads, early), Committed()]
    # While that is on its way; not where the first image goes.
    steps.append(Clear(plan.arena_words, threads))
    arrived = Arrived(_matrices(plan), but_last=late > 0)
    return (*steps, arrived, Barrier(plan.threads, block=True))


def _matrices(plan: Stack) -> bool:
    return any(phase.warpgroup for phase in plan.phases)


def _item(plan: Stack, pixels: Pixels | None, given: list[Given], staged: int) -> tuple[Step, ...]:
    """What happens to one image, or strip of one."""
    threads = 32 * plan.warps
    steps: list[Step] = []
    late = plan.late_words > 0
    if staged and not late:
        steps += [Arrived(), Barrier(threads)]
    for number, which in enumerate(plan.filled):
        steps += [
            _fill(plan, number, given[which], pixels, staged if which == 0 else 0),
            _border(plan, number),
        ]
    if plan.filled:
        steps.append(Barrier(threads))
    if staged:
        steps.append(FetchImage(plan.arena_words, staged, threads, ahead=True))
    for index, phase in enumerate(plan.phases[:-2] if plan.apart else plan.phases):
        steps.append(_work(plan, index, phase, given, pixels))
        target = plan.gives_to(index)
        if target is not None and target not in _before(plan, index):
            steps.append(_border(plan, target))
        if late and index == 0:  # the next image's bytes have arrived then, too
            steps.append(Arrived(_matrices(plan), ahead=True))
        steps.append(Barrier(threads))
        if target is not None and phase.target is not None and plan.strip:
            rows, height = plan.strip.pictures[target], phase.target.height
            steps.append(Outside(rows, height, (_blank(plan, target), Barrier(threads))))
    if plan.apart:
        steps.append(_together(plan, given))
    return tuple(steps)


def _together(plan: Stack, given: list[Given]) -> Together:
    """The last fully connected layer and its softmax, of several images."""
    last, softmax = len(plan.phases) - 2, len(plan.phases) - 1
    scores = _convolve(plan, last, plan.phases[last], given)
    return Together(
        plan.held, (scores, Barrier(32 * plan.warps), _softmax(plan, softmax, plan.phases[softmax]))
    )


def _before(plan: Stack, index: int) -> set[int]:
    """Pictures that are there before a phase: what it writes over has its zeros around it."""
    made = {plan.gives_to(each) for each in range(index)}
    return {number for number in (*range(len(plan.filled)), *made) if number is not None}


def _fill(plan: Stack, number: int, given: Given, pixels: Pixels | None, staged: int) -> Fill:
    picture, strip, words = plan.pictures[number], plan.strip, given.source == "words"
    threes = staged and picture.tight and picture.channels == 3 and picture.width % 4 == 0
    readers = plan.readers(number)
    fours = any(each.operation.folded for each in readers)
    return Fill(
        form="words" if words else "fours" if fours else "threes" if threes else "values",
        staged=plan.arena_words if staged else None,
        at=plan.place(number) + picture.padding[0] * picture.row,
        rows=strip.pictures[0] if strip else None,
        pixels=pixels if given.source == "uint8" else None,
        threads=32 * plan.warps,
        channels=picture.channels,
        height=picture.height,
        width=picture.width,
        source_height=strip.source[1] if strip else picture.height,
        whole=strip is None,
        left=picture.padding[1],
        pitch=picture.pitch,
        words=picture.words,
        row=picture.row,
        tight=picture.tight,
        copy=picture.copy,
        floats=picture.floats,
        round=all(each.shares is not None and not each.operation.mixed for each in readers),
        each=plan.copied_at_once(number),
        index=number,
        given=given if given.number else None,
    )


def _border(plan: Stack, index: int) -> Border:
    picture = plan.pictures[index]
    unit = picture.channels if picture.tight else picture.pitch
    left = picture.padding[1]
    gap, after = plan.gaps(index)
    return Border(
        index=index,
        at=plan.place(index),
        around=plan.around(index),
        tight=picture.tight,
        threads=32 * plan.warps,
        row=picture.row,
        copy=picture.copy,
        top=picture.padding[0],
        height=picture.height,
        left=left * unit,
        right=(left + picture.width) * unit,
        width=picture.width,
        pitch=picture.pitch,
        words=picture.words,
        gap=gap,
        after=after,
        dirty=plan.dirty(index),
    )


def _blank(plan: Stack, index: int) -> Blank:
    picture = plan.pictures[index]
    assert plan.strip
    rows = plan.strip.pictures[index]
    return Blank(
        index=index,
        at=plan.place(index),
        rows=rows,
        threads=32 * plan.warps,
        height=picture.height,
        row=picture.row,
        source_height=rows.height,
    )


def _work(
    plan: Stack, index: int, phase: Phase, given: list[Given], pixels: Pixels | None
) -> Convolve | Channels | Each | Windows | Join | Softmax:
    match phase.operation.kind:
        case "sum":
            return _convolve(plan, index, phase, given)
        case "channels":
            return _channels(plan, index, phase)
        case "each":
            return (_windows if phase.operation.sticks_out else _each)(plan, index, phase, given)
        case "join":
            return _join(plan, index, phase, given, pixels)
        case "softmax":
            return _softmax(plan, index, phase)
        case unknown:
            assert_never(unknown)


def _softmax(plan: Stack, index: int, phase: Phase) -> Softmax:
    apart = plan.apart.get(plan.reads(index)[0].number, 0)
    return Softmax(
        _source_at(plan, index), _target_at(plan, index), phase.operation.source[2], apart
    )


def _source_at(plan: Stack, index: int) -> int:
    return plan.place(plan.reads(index)[0].number)


def _first_window(plan: Stack, index: int) -> int:
    """Where the first of windows begins that are not read through tables."""
    phase = plan.phases[index]
    if phase.operation.direct:
        return 0
    window = phase.operation.window if phase.operation.kind == "channels" else Window()
    return _source_at(plan, index) + phase.source.place(*offset(phase.source, window))


def _outside(plan: Stack, index: int, given: list[Given]) -> Given | None:
    """Where in device memory an operation reads what it takes, if it does."""
    taken = plan.reads(index)[0]
    return None if taken.held else given[taken.number]


def _target_at(plan: Stack, index: int) -> int | None:
    target = plan.gives_to(index)
    return None if target is None else plan.place(target)


def _target(plan: Stack, index: int, phase: Phase) -> Target:
    sink, filters = phase.sink, phase.operation.result[0]
    # Two channels, four or eight, are written at once where they always lie on such a boundary;
    # floats, which others read one by one, in device memory alone.
    distances = (filters, sink.row, sink.pixel, sink.place(0, 0))
    between = phase.target is None and plan.gives == "words"
    return Target(
        at=_target_at(plan, index),
        paired=all(distance % 2 == 0 for distance in distances)
        and (sink.to != "TW_TO_FLOATS" or between),
        wide=_columns_at_once(phase, filters) if phase.target is None else 0,
        filters=filters,
        to=sink.to,
        plane=sink.plane,
        out_row=sink.row,
        out_pixel=sink.pixel,
        origin=sink.place(0, 0),
        apart=_apart(plan, index),
    )


def _columns_at_once(phase: Phase, filters: int) -> Wide:
    """Of halves, in device memory: lanes exchange words, so that they write 32 bytes or more."""
    shares, sink = phase.shares, phase.sink
    if shares is None or sink.to != "TW_TO_HALVES":
        return 0
    if shares.columns % 4 == 0 and filters % 32 == 0 and 8 * shares.all_columns == filters:
        return 4
    even = all(words % 2 == 0 for words in (sink.row, sink.pixel, sink.place(0, 0)))
    return 2 if shares.columns > 1 and even and not shares.geometry.folded else 0


def _apart(plan: Stack, index: int) -> int:
    """Words between images' results, where those of several are held; scores have tables."""
    target = plan.gives_to(index)
    return 0 if target is None or index == len(plan.phases) - 2 else plan.apart.get(target, 0)


def _convolve(plan: Stack, index: int, phase: Phase, given: list[Given]) -> Convolve:
    shares, operation = phase.shares, phase.operation
    assert shares
    taps_y = operation.window.taps[0]
    count, full, half = runs_of(shares, phase.source)
    layer, words, (_, tables) = operation.names[0], plan.parameter_words, plan.tables
    pool, before, after = pool_of(operation)
    above, below = edges_of(plan, phase)
    return Convolve(
        index=index,
        at=_source_at(plan, index),
        weights=words[f"{layer}.weight"],
        weights_shared=phase.shared,
        bias=words[f"{layer}.bias"],
        tables=tables[layer],
        target=_target(plan, index, phase),
        before=before,
        activations=after,
        warps=plan.warps,
        tiles=shares.tile_count,
        units=shares.units,
        rows=shares.rows,
        columns=shares.columns,
        all_columns=shares.all_columns,
        taps_y=taps_y,
        stride_y=operation.window.stride[0],
        input_rows=shares.input_rows,
        tops=shares.tops,
        above=above,
        bottoms=shares.bottoms,
        below=below,
        row=phase.source.row,
        pitch=phase.source.pitch,
        runs=count,
        full=full,
        half=half,
        rows_first=shares.rows_first,
        unroll=unrolled(plan, phase),
        pool=pool,
        rounds=operation.mixed and plan.arithmetic.rounds,
        pairs=pairs_of(shares, phase.source),
        twice=shares.twice,
        added=_added(plan, index, phase, given) if operation.added else None,
        narrow=shares.narrow,
        folded=operation.folded,
        warpgroup=phase.warpgroup,
        beside=phase.target is None and plan.gives != "output" and phase.shared,
    )


def pool_of(
    operation: Operation,
) -> tuple[PoolStep, tuple[Elementwise, ...], tuple[Elementwise, ...]]:
    """How sums are pooled, and the activations before that, or before something is added, and
    after it."""
    before, after, pool = operation.before, operation.after, operation.pool
    if not pool and not operation.added:
        return "", (), before + after
    # Activations that keep order give after a maximum what they would have given before it.
    each = pool == "max" and not all(layer.keeps_order for layer in before)
    return "max of each" if each else pool, before, after


def _added(plan: Stack, index: int, phase: Phase, given: list[Given]) -> Added:
    taken = plan.reads(index)[1]
    assert phase.added
    at = plan.place(taken.number) if taken.held else None
    return Added(at, None if taken.held else given[taken.number], phase.added.row)


def _channels(plan: Stack, index: int, phase: Phase) -> Channels:
    operation, layer = phase.operation, phase.operation.stages[0].layer
    assert isinstance(layer, Convolution)
    name, words = operation.names[0], plan.parameter_words
    return Channels(
        index=index,
        at=_first_window(plan, index),
        weights=words[f"{name}.weight"],
        weights_shared=phase.shared,
        bias=words[f"{name}.bias"],
        target=_target(plan, index, phase),
        activations=operation.after,
        threads=32 * plan.warps,
        row=phase.source.row,
        pitch=phase.source.pitch,
        taps_y=layer.kernel[0],
        taps_x=layer.kernel[1],
        stride_y=layer.stride[0],
        stride_x=layer.stride[1],
        apart_y=layer.dilation[0],
        apart_x=layer.dilation[1],
        multiple=operation.result[0] // operation.source[0],
        tall=outputs_of_a_thread(layer, operation.result, plan.warps, plan.groups),
        out_y=operation.result[1],
        out_x=operation.result[2],
    )


def _windows(plan: Stack, index: int, phase: Phase, given: list[Given]) -> Windows:
    operation, layer = phase.operation, phase.operation.stages[0].layer
    assert isinstance(layer, Pooling)
    counts = isinstance(layer, AveragePool) and layer.count_padding
    rows = plan.strip.pictures[plan.reads(index)[0].number] if plan.strip else None
    return Windows(
        index=index,
        at=_first_window(plan, index),
        target=_target(plan, index, phase),
        activations=operation.after,
        rows=rows,
        threads=32 * plan.warps,
        row=phase.source.row,
        pitch=phase.source.pitch,
        floats=phase.source.floats,
        taps_y=layer.size[0],
        taps_x=layer.size[1],
        stride_y=layer.stride[0],
        stride_x=layer.stride[1],
        top=0 if rows else layer.padding[0],
        left=layer.padding[1],
        height=rows.height if rows else operation.source[1],
        width=operation.source[2],
        given=_outside(plan, index, given),
        average=operation.pool == "average",
        counted_y=layer.padding[2],
        counted_x=layer.padding[3],
        counts_padding=counts,
        out_y=operation.result[1],
        out_x=operation.result[2],
    )


def _join(plan: Stack, index: int, phase: Phase, given: list[Given], pixels: Pixels | None) -> Join:
    operation = phase.operation
    stage = operation.stages[0]
    how: How = HOW.get(type(stage.layer), "behind")
    reaches: list[Reach] = ["value" for _ in operation.shapes]
    if how == "multiplied":
        reaches[1] = Multiply.reach(stage.input_shapes)
    parts = [
        _part(plan, taken, shape, given, pixels, operation.result[1:], reach)
        for taken, shape, reach in zip(plan.reads(index), operation.shapes, reaches, strict=True)
    ]
    if isinstance(stage.layer, Take):
        places = (stage.layer.rows, stage.layer.columns)
        parts = [replace(each, flat=False, chosen=places) for each in parts]
    return Join(
        index=index,
        parts=tuple(parts),
        how=how,
        target=_target(plan, index, phase),
        activations=operation.after,
        threads=32 * plan.warps,
        out_y=operation.result[1],
        out_x=operation.result[2],
    )


def _part(
    plan: Stack,
    taken: Taken,
    shape: Shape,
    given: list[Given],
    pixels: Pixels | None,
    size: tuple[int, ...],
    reach: Reach,
) -> Part:
    channels, height, width = shape
    flat = (height, width) != ((1, 1) if reach == "channel" else size)
    if taken.held:
        picture = plan.pictures[taken.number]
        at = plan.place(taken.number) + picture.inside(0, 0)
        row, pitch, floats, source = picture.row, picture.pitch, picture.floats, None
    else:
        picture, source = plain(plan.arithmetic, shape), given[taken.number]
        at, row, pitch, floats = None, picture.row, picture.pitch, False
        if source.source != "uint8":
            pixels = None
    return Part(
        at, source, None if taken.held else pixels, channels, height, width, row, pitch, floats,
        flat, reach,
    )  # fmt: skip


def _each(plan: Stack, index: int, phase: Phase, given: list[Given]) -> Each:
    operation = phase.operation
    return Each(
        index=index,
        at=_first_window(plan, index),
        target=_target(plan, index, phase),
        activations=operation.after,
        threads=32 * plan.warps,
        row=phase.source.row,
        pitch=phase.source.pitch,
        floats=phase.source.floats,
        taps_y=operation.window.taps[0],
        taps_x=operation.window.taps[1],
        stride_y=operation.window.stride[0],
        stride_x=operation.window.stride[1],
        given=_outside(plan, index, given),
        average=operation.pool == "average",
        out_y=operation.result[1],
        out_x=operation.result[2],
    )
