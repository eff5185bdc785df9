"""A GPU rung's kernels as tables: where loops went, what they take and move, what limits them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType

from tilewright.limits import FEW_BLOCKS, INDICES, MEMORY
from tilewright.model.layers import dimensions
from tilewright.model.network import Network, Stage
from tilewright.rungs.gpu.design import Design
from tilewright.rungs.gpu.explain import KernelFacts, LayerFacts, Target
from tilewright.rungs.rung import Rung
from tilewright.views import plan, units
from tilewright.views.table import Listed, facts, table

if TYPE_CHECKING:
    from tilewright.runtime.dialect import Source
    from tilewright.runtime.multiprocessor import Gpu


def report(
    rung: Rung, network: Network, layers: Sequence[LayerFacts], at: Target, images: int
) -> Iterator[RenderableType]:
    yield f"{rung.name} on {network.name}, batches of {units.count(images)}: {rung.idea}"
    yield assumptions(at)
    for layer in layers:
        stage = layer.stage
        yield (
            f"\n{stage.name}: {stage.layer.summary or stage.kind}, "
            f"{dimensions(stage.input_shape)} to {dimensions(stage.output_shape)}"
        )
        if layer.problem is not None:
            yield f"  {layer.problem}"
        if layer.options:
            yield f"chosen: {plan.options(layer.options)}"
        if layer.launches > 1:
            yield (
                f"the batch takes {units.count(layer.launches)} launches of up to "
                f"{units.count(layer.images)} images; the figures are of one"
            )
        for index, kernel in enumerate(layer.kernels):
            several = f" ({index + 1} of {len(layer.kernels)})" if len(layer.kernels) > 1 else ""
            name = f"\n{stage.name}: {kernel.work.source.name}{several}"
            yield _loops(name, kernel, layer.images) if kernel.work.loops else name
            words = facts(name.strip())
            yield ""
            for fact in _facts(kernel, at.gpu):
                words.add_row(*fact)
            yield words
    yield (
        "\nonce: every buffer read or written once. issued: what threads ask of device memory, "
        "which caches may serve. The limit and the time at best are of throughput alone: waiting "
        "for memory and at barriers and bank conflicts come on top. Taps outside the image count "
        "like the others, though some kernels leave them out."
    )


def _loops(name: str, kernel: KernelFacts, images: int) -> RenderableType:
    loops = table(name, "loop", ">extent", "where it went")
    place = "block and thread" if kernel.work.images_per_block > 1 else "block"
    loops.add_row("image", units.count(images), place)
    for loop in kernel.work.loops:
        loops.add_row(loop.name, units.count(loop.extent), loop.place)
    return loops


def sources(stage: Stage, design: Design | str) -> str:
    """The defines and the text of a layer's kernels; together they are a source file."""
    if isinstance(design, str):
        return f"/* {stage.name}: {design} */\n"
    return "\n".join(_source(stage, work.source) for work in design.works)


def _source(stage: Stage, source: Source) -> str:
    between = (
        " Between these lines and the kernel comes\n * tilewright/runtime/prelude.h."
        if source.language == "dialect"
        else ""
    )
    return f"/* {stage.name}: {source.name}.{between} */\n{source.defines}\n{source.text}"


def assumptions(at: Target) -> str:
    gpu = at.gpu
    rates = (
        f"{gpu.name} ({gpu.architecture}): {gpu.processors} multiprocessors, "
        f"{gpu.hertz / 1e9:.2f} GHz, {gpu.bytes_per_second / 1e12:.1f} TB/s"
    )
    lines = [rates, at.note, f"Registers are unknown: {why}" if (why := at.uncompiled) else ""]
    return "\n".join(line for line in lines if line)


def _facts(kernel: KernelFacts, gpu: Gpu) -> Iterator[tuple[str, str]]:
    source, compiled, held = kernel.work.source, kernel.compiled, kernel.occupancy
    threads = math.prod(source.block)
    yield (
        "grid and block",
        Listed(
            f"{_product(kernel.grid)} blocks of {_product(source.block)} = {threads:,} threads",
            [("blocks", units.count(math.prod(kernel.grid))), ("threads", units.count(threads))],
        ),
    )
    yield (
        "memory of a block",
        _listed(
            ("bytes shared", 4 * source.shared_floats),
            ("bytes constant", 4 * source.constant_floats),
        ),
    )
    if compiled is None or held is None:
        yield "registers", "-"
        yield "occupancy", "-"
    else:
        yield (
            "registers",
            _listed(
                ("a thread", compiled.registers),
                ("bytes spilled", compiled.spilled_bytes),
                ("bytes of stack", compiled.stack_bytes),
            ),
        )
        share = units.share(held.share)
        yield (
            "occupancy",
            Listed(
                f"{share}: {held.blocks} blocks a multiprocessor, limited by {held.limit}",
                [("share", share), ("blocks a multiprocessor", units.count(held.blocks))],
            ),
        )
    issued = f"; {_bytes(kernel, kernel.issued_bytes)} issued" if kernel.issued_bytes else ""
    yield "bytes", f"{_bytes(kernel, kernel.cost.bytes)} once{issued}"
    if kernel.loads_each is not None:
        each = f"{units.digits(kernel.cost.flops / 1e6)} MFLOP, {kernel.loads_each:.2f} loads"
        if kernel.broadcasts:
            each += f" and {kernel.broadcasts / kernel.multiply_adds:.2f} from constant memory"
        yield "arithmetic", f"{each} for each multiply-add"
    elif kernel.cost.flops:
        yield "arithmetic", f"{units.digits(kernel.cost.flops / 1e6)} MFLOP"
    yield "limit", _limit(kernel, gpu)
    yield "at best", units.seconds(kernel.seconds)


def _limit(kernel: KernelFacts, gpu: Gpu) -> str:
    lanes = gpu.multiprocessor
    if kernel.limit == FEW_BLOCKS:
        return f"{FEW_BLOCKS}: {math.prod(kernel.grid):,} for {gpu.processors} multiprocessors"
    if kernel.limit == MEMORY:
        return f"{MEMORY}: every byte once at {gpu.bytes_per_second / 1e12:.1f} TB/s"
    if kernel.limit == INDICES:
        each = kernel.cost.index_operations / max(1, kernel.multiply_adds)
        return (
            f"{INDICES}: {each:.1f} operations for each multiply-add, "
            f"{lanes.index_lanes / lanes.fma_lanes:.2f} are sustained"
        )
    if not kernel.cost.loads:  # of a user's kernel nobody knows
        return f"{kernel.limit}, if loads and index arithmetic take no time"
    if kernel.loads_each is None:
        return f"{kernel.limit}: {kernel.cost.loads:,.0f} loads"
    return (
        f"{kernel.limit}: {kernel.loads_each:.2f} loads for each multiply-add, "
        f"a multiprocessor sustains {lanes.load_lanes / lanes.fma_lanes:.2f}"
    )


def _bytes(kernel: KernelFacts, size: float) -> str:
    if not kernel.cost.flops:
        return units.size(size)
    return f"{units.size(size)} ({kernel.cost.flops / size:.2f} FLOP each)"


def _listed(*numbers: tuple[str, int]) -> Listed:
    parts = [(name, units.count(number)) for name, number in numbers]
    return Listed(", ".join(f"{number} {name}" for name, number in parts), parts)


def _product(sizes: Sequence[int]) -> str:
    return " x ".join(map(units.count, sizes))
