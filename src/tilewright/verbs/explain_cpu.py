"""The parts of `explain` for CPU rungs: `fused` is run and timed, loops are read."""

from __future__ import annotations

from dataclasses import replace

from tilewright.environment import cpu_cores
from tilewright.errors import TilewrightError
from tilewright.fuse.cpu.choice import rules_of
from tilewright.fuse.cpu.explain import GroupFacts, explain, machine_code
from tilewright.model.network import Network
from tilewright.profiling import ceilings
from tilewright.results.explain import PieceRecord
from tilewright.rungs.cpu.explain import LayerFacts, explain_loops, explain_product
from tilewright.rungs.rung import Rung
from tilewright.runtime.device import CPU
from tilewright.verbs.explained import Found

FUSED_BATCH = 640  # enough for every core


def explain_cpu(rung: Rung, network: Network, batch: int | None, asm: str | None) -> Found:
    target = rung.open_runtime(CPU, rung.memories[0]).describe()
    if rung.name == "fused":
        return _fused(rung, target, network, batch or FUSED_BATCH, asm)
    if rung.vendor:
        raise TilewrightError(f"rung {rung.name!r} is a library's: {rung.idea}")
    for name, value in (("asm", asm), ("batch", batch)):
        if value is not None:
            raise TilewrightError(f"--{name} is for the rung 'fused', not {rung.name!r}")
    return _loops(target, rung, network)


def _fused(rung: Rung, target: str, network: Network, images: int, asm: str | None) -> Found:
    rules = rules_of(rung.precision)
    if asm is not None:
        return Found(target, images, code=machine_code(network, asm, images, rules))
    from tilewright.views.explain import report

    explained = explain(network, images, rules)
    # A rate that was reached is no more than the ceiling: it is the one kept, or measured again.
    fastest = max(group.rate for group in explained.groups)
    known, problem = ceilings.ceilings(CPU, target, at_least=fastest)
    explained = replace(explained, peak=max(explained.peak, known.flops or 0.0))
    shown = (*report(network, explained), *(() if problem is None else (problem,)))
    return Found(target, images, tuple(map(_group, explained.groups)), shown, explained.peak)


def _group(group: GroupFacts) -> PieceRecord:
    return PieceRecord(
        layers=group.layers,
        tile=group.tile,
        images=group.images,
        flop=group.nominal_flops * group.images,
        executed_flop=group.executed_flops * group.images,
        seconds=group.seconds,
    )


def _loops(target: str, rung: Rung, network: Network) -> Found:
    """What became of every loop of the other rungs."""
    from tilewright.views import explain_cpu as view

    if rung.name == "im2col":
        layers = list(explain_product(network))
    else:
        layers = list(explain_loops(network, 1 if rung.name == "serial" else cpu_cores()))
    shown = tuple(view.report(rung, network, layers))
    return Found(target, None, tuple(map(_layer, layers)), shown)


def _layer(facts: LayerFacts) -> PieceRecord:
    stage = facts.stage
    return PieceRecord(layers=(stage.name,), kernel=facts.source, images=1, flop=stage.flops)
