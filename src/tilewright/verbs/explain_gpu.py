"""The parts of `explain` for GPU rungs: nothing is run, and no GPU is needed."""

from __future__ import annotations

from tilewright.errors import TilewrightError
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.cut import build, choose, few_of, sources, with_few
from tilewright.fuse.cuda.explain import Facts
from tilewright.fuse.cuda.explain import explain as explain_cut
from tilewright.fuse.cuda.run import kernel_name, kernel_text
from tilewright.model.network import Network
from tilewright.results.explain import PieceRecord
from tilewright.rungs import DEFAULT_BATCH
from tilewright.rungs.gpu.explain import (
    KernelFacts,
    LayerFacts,
    chosen,
    designed,
    explain,
    target,
)
from tilewright.rungs.rung import Rung, whole_network
from tilewright.runtime.device import Device
from tilewright.verbs.explained import Found


def explain_kernels(
    rung: Rung,
    network: Network,
    layer: str | None,
    device: Device | None,
    batch: int | None,
    source: bool,
) -> Found:
    """Of a rung whose kernels are written down: every layer has its own."""
    from tilewright.views import explain_gpu as view

    stages = chosen(network, layer)
    at = target(device, rung)
    images, words = batch or DEFAULT_BATCH, view.assumptions(at)
    if source:
        texts = [view.sources(stage, designed(rung, stage, at.limits)) for stage in stages]
        return Found(words, images, code="\n".join(texts))
    facts = explain(rung, stages, at, images)
    shown = tuple(view.report(rung, network, facts, at, images))
    pieces = tuple(piece for each in facts for piece in _layer(each))
    return Found(words, images, pieces, shown)


def _layer(facts: LayerFacts) -> list[PieceRecord]:
    layers = (facts.stage.name,)
    if not facts.kernels:
        return [PieceRecord(layers=layers, problem=facts.problem)]
    return [_kernel(layers, facts.images, each) for each in facts.kernels]


def _kernel(layers: tuple[str, ...], images: int, facts: KernelFacts) -> PieceRecord:
    source, compiled = facts.work.source, facts.compiled
    return PieceRecord(
        layers=layers,
        kernel=source.name,
        images=images,
        grid=facts.grid,
        block=source.block,
        registers=None if compiled is None else compiled.registers,
        spilled_bytes=None if compiled is None else compiled.spilled_bytes,
        shared_bytes=4 * source.shared_floats,
        constant_bytes=4 * source.constant_floats,
        occupancy=None if facts.occupancy is None else facts.occupancy.share,
        flop=facts.cost.flops,
        loads=facts.cost.loads,
        bytes=facts.cost.bytes,
        issued_bytes=facts.issued_bytes,
        limit=facts.limit,
        seconds=facts.seconds,
    )


def explain_generated(
    rung: Rung, network: Network, device: Device | None, batch: int | None, source: bool
) -> Found:
    """Of a rung that generates CUDA kernels of several layers: for many images, or for a batch."""
    from tilewright.views.explain_fused import report
    from tilewright.views.explain_gpu import assumptions

    at = target(device, rung)
    precision = rung.precision.name
    facts: list[Facts] = []
    few_up_to = 0
    texts: list[str] = []
    # Single layers that are no convolutions are computed as on all other rungs.
    generated = [part for part in rung.cut(network) if len(part) > 1 or part[0].kind == "conv"]
    if not generated:
        raise TilewrightError(
            f"{network.name!r} has no convolution for rung {rung.name!r} to compute"
        )
    for stages in generated:
        choice = choose(stages, ARITHMETICS[precision], at.gpu.capability)
        if rung.cut is whole_network:
            choice = with_few(choice, stages, ARITHMETICS[precision], at.gpu.capability)
        few = None if batch is None else few_of(choice, batch)
        few_up_to = choice.few_up_to
        kernels = build(stages, ARITHMETICS[precision], at.gpu.capability, choice, few)
        if source:
            read = sources(kernels, "uint8" if stages[0].kind == "input" else "float32")
            for plan, each in zip(kernels, read, strict=True):
                name = kernel_name(rung.name, precision, plan, len(kernels) == 1)
                texts.append(kernel_text(plan, name, stages[0].layer, each))
        else:
            facts += explain_cut(kernels, stages, rung.name, precision, at.gpu.architecture)
    if source:
        return Found(assumptions(at), batch, code="\n".join(texts))
    shown = tuple(report(rung, network, facts, at, batch, few_up_to))
    return Found(assumptions(at), batch, tuple(map(_generated, facts)), shown)


def _generated(facts: Facts) -> PieceRecord:
    compiled = facts.compiled
    return PieceRecord(
        layers=facts.layers,
        kernel=facts.name,
        images=1,
        registers=None if compiled is None else compiled.registers,
        spilled_bytes=None if compiled is None else compiled.spilled_bytes,
        flop=facts.flops,
    )
