"""The kernels of a GPU rung for a network as the compiler made them: a record for reports."""

from __future__ import annotations

from tilewright import environment
from tilewright.model.load import load
from tilewright.results.page import KernelRecord, KernelsRecord, LoopRecord
from tilewright.rungs.gpu.explain import KernelFacts, chosen, explain, target
from tilewright.rungs.rung import Rung
from tilewright.runtime.device import Device


def compiled(rung: Rung, net: str, device: Device, batch: int) -> KernelsRecord | None:
    """Of every convolution; None for a rung that generates its kernels for a whole network."""
    if rung.convolutions is None:
        return None
    network, at = load(net), target(device, rung)
    layers = explain(rung, chosen(network, None), at, batch)
    name = f"{at.gpu.name} ({at.gpu.architecture})"
    return KernelsRecord(
        network=network.name, device=str(device), device_name=name,
        environment=environment.fingerprint(), rung=rung.label, batch=batch,
        target="; ".join(words for words in (name, at.note, at.uncompiled) if words),
        kernels=tuple(
            _kernel(each.stage.name, kernel) for each in layers for kernel in each.kernels
        ),
        problems={each.stage.name: each.problem for each in layers if each.problem is not None},
    )  # fmt: skip


def _kernel(layer: str, facts: KernelFacts) -> KernelRecord:
    source, made, held = facts.work.source, facts.compiled, facts.occupancy
    return KernelRecord(
        name=source.name, layer=layer, grid=facts.grid, block=source.block,
        shared_bytes=4 * source.shared_floats, constant_bytes=4 * source.constant_floats,
        registers=None if made is None else made.registers,
        spilled_bytes=None if made is None else made.spilled_bytes,
        occupancy=None if held is None else held.share,
        occupancy_limit=None if held is None else held.limit,
        limit=facts.limit, best_seconds=facts.seconds,
        loops=tuple(
            LoopRecord(name=loop.name, extent=loop.extent, place=loop.place)
            for loop in facts.work.loops
        ),
        source=f"{source.defines}\n{source.text}",
    )  # fmt: skip
