"""A stack's plan as the list of steps that its kernel is."""

from __future__ import annotations

from typing import assert_never

from tilewright.fuse.cuda.pictures import runs
from tilewright.fuse.cuda.stack import Phase, Source, Stack
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
    Target,
)
from tilewright.model.layers import Pixels

# Products of a convolution that are written out one after the other, each an instruction with its
# loads. The compiler's time grows faster than their number: a kernel of All-CNN (96 and 192
# channels, fp16) with 7,776 took it 40 CPU seconds, with 1,728 it takes 4, and spills no more.
# Nothing that was measured to gain by being written out has more than 1,152 (NVRTC 13.4,
# 2026-11-15).
MOST_PRODUCTS = 1200


def written_out(steps: int, products: int) -> int:
    """How many steps of a sum, of so many products each, are written out before it is a loop."""
    most = max(1, MOST_PRODUCTS // products)
    if steps <= most:
        return max(1, steps)
    # All rounds of the loop are alike, if that makes them no shorter than half.
    alike = [each for each in range(most, most // 2, -1) if steps % each == 0]
    return alike[0] if alike else most


def program(plan: Stack, pixels: Pixels | None, source: Source) -> Program:
    """`pixels` say what bytes mean; `source` is the type of what the kernel reads."""
    channels, height, width = plan.strip.source if plan.strip else plan.operations[0].source
    each = plan.phases[0].source.words if source == "words" else channels
    staged = plan.staged_bytes if source == "uint8" else 0
    return Program(
        arithmetic=plan.arithmetic,
        source=source,
        threads=plan.threads,
        groups=plan.groups,
        warps=plan.warps,
        shared_words=plan.shared_words,
        group_words=sum(plan.arenas) + -(-staged // 16) * 4,
        image_size=height * width * each,
        result_words=plan.result_words,
        result_row=plan.phases[-1].sink.row,
        strip=plan.strip,
        once=_once(plan, staged),
        item=_item(plan, pixels, source, staged),
    )


def _once(plan: Stack, staged: int) -> tuple[Step, ...]:
    threads = 32 * plan.warps
    steps: list[Step] = [
        # Not where the first image is fetched to: another thread's zeros may come after its bytes.
        Clear(sum(plan.arenas), threads),
        FetchParameters(4 * plan.shared_words, plan.threads),
    ]
    if staged:
        steps.append(FetchImage(sum(plan.arenas), staged, threads, ahead=False))
    return (*steps, Arrived(), Barrier(plan.threads, block=True))


def _item(plan: Stack, pixels: Pixels | None, source: Source, staged: int) -> tuple[Step, ...]:
    """What happens to one image, or strip of one."""
    threads = 32 * plan.warps
    steps: list[Step] = []
    if staged:
        steps += [Arrived(), Barrier(threads)]
    steps += [_fill(plan, pixels, source, staged), _border(plan, 0), Barrier(threads)]
    if staged:
        steps.append(FetchImage(sum(plan.arenas), staged, threads, ahead=True))
    for index, phase in enumerate(plan.phases):
        steps.append(_work(plan, index, phase))
        if phase.target is not None:
            steps.append(_border(plan, index + 1))
        steps.append(Barrier(threads))
        if phase.target is not None and plan.strip:
            rows, height = plan.strip.pictures[index + 1], phase.target.height
            steps.append(Outside(rows, height, (_blank(plan, index + 1), Barrier(threads))))
    return tuple(steps)


def _fill(plan: Stack, pixels: Pixels | None, source: Source, staged: int) -> Fill:
    picture, strip = plan.phases[0].source, plan.strip
    threes = staged and picture.tight and picture.channels == 3 and picture.width % 4 == 0
    return Fill(
        form="words" if source == "words" else "threes" if threes else "values",
        staged=sum(plan.arenas) if staged else None,
        at=plan.place(0) + picture.padding[0] * picture.row,
        rows=strip.pictures[0] if strip else None,
        pixels=pixels if source == "uint8" else None,
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
        round=plan.phases[0].shares is not None,
    )


def _border(plan: Stack, index: int) -> Border:
    picture = plan.phases[index].source
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
    picture = plan.phases[index].source
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


def _work(plan: Stack, index: int, phase: Phase) -> Convolve | Each | Softmax:
    match phase.operation.kind:
        case "sum":
            return _convolve(plan, index, phase)
        case "each":
            return _each(plan, index, phase)
        case "softmax":
            return Softmax(
                plan.place(index), _target_at(plan, index, phase), phase.operation.source[2]
            )
        case unknown:
            assert_never(unknown)


def _target_at(plan: Stack, index: int, phase: Phase) -> int | None:
    return None if phase.target is None else plan.place(index + 1)


def _target(plan: Stack, index: int, phase: Phase) -> Target:
    sink, filters = phase.sink, phase.operation.result[0]
    # Two channels, or eight, are written at once where they always lie on such a boundary.
    distances = (filters, sink.row, sink.pixel, sink.place(0, 0))
    wide = (
        phase.shares is not None
        and phase.target is None
        and sink.to == "TW_TO_HALVES"
        and phase.shares.columns % 4 == 0
        and filters % 32 == 0
        and 8 * phase.shares.all_columns == filters
    )
    return Target(
        at=_target_at(plan, index, phase),
        paired=all(distance % 2 == 0 for distance in distances),
        wide=wide,
        filters=filters,
        to=sink.to,
        plane=sink.plane,
        out_row=sink.row,
        out_pixel=sink.pixel,
        origin=sink.place(0, 0),
    )


def _convolve(plan: Stack, index: int, phase: Phase) -> Convolve:
    shares, operation = phase.shares, phase.operation
    assert shares
    taps_y, taps_x = operation.window.taps
    count, full, half = runs(plan.arithmetic, phase.source, taps_x, shares.reads)
    layer, words, (_, tables) = operation.names[0], plan.parameter_words, plan.tables
    before, after, pool = operation.before, operation.after, operation.pool
    if not pool:
        before, after = (), before + after
    # Activations that keep order give after a maximum what they would have given before it.
    each = pool == "max" and not all(layer.keeps_order for layer in before)
    return Convolve(
        index=index,
        at=plan.place(index),
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
        row=phase.source.row,
        pitch=phase.source.pitch,
        runs=count,
        full=full,
        half=half,
        rows_first=shares.rows_first,
        # Steps written out one after the other are 5 to 12 % faster on tensor cores; as
        # multiply-adds they are so long that groups in different layers run out of instruction
        # cache: 20 to 46 % slower (cifar10, H200, 2026-11-15).
        unroll=written_out(count * full, taps_y * shares.rows * shares.columns)
        if plan.arithmetic.tensor
        else 1,
        pool="max of each" if each else pool,
    )


def _each(plan: Stack, index: int, phase: Phase) -> Each:
    operation = phase.operation
    return Each(
        index=index,
        at=plan.place(index),
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
        average=operation.pool == "average",
        out_y=operation.result[1],
        out_x=operation.result[2],
    )
