"""`tilewright.explain`: what a rung does with a network: tiles, arithmetic, memory, limits."""

from __future__ import annotations

from pathlib import Path

from tilewright import environment
from tilewright.climb import prepare
from tilewright.errors import TilewrightError
from tilewright.model.load import Net, Weights, load
from tilewright.results.explain import ExplainRecord
from tilewright.rungs import choose, find
from tilewright.rungs.rung import whole_network
from tilewright.runtime.device import CPU, Device
from tilewright.verbs.arguments import PRECISIONS, device_of, one_of, positive_or_none, quiet
from tilewright.verbs.explain_cpu import explain_cpu
from tilewright.verbs.explain_gpu import explain_generated, explain_kernels
from tilewright.verbs.explained import ExplainResult


@quiet
def explain(
    rung: str | Path,
    net: Net = "ece408",
    *,
    weights: Weights | None = None,
    batch: int | None = None,
    asm: str | None = None,
    layer: str | None = None,
    device: str | Device | None = None,
    source: bool = False,
    precision: str | None = None,
) -> ExplainResult:
    """Explain what a rung does with a network: tiles, arithmetic, memory, and what limits it.

    `rung` is any rung or a kernel file; `batch` the images at a time (default: 640 for
    fused, 100 for a GPU rung, many for network). Of fused, `asm` names a layer whose inner loop's
    machine code is wanted instead. Of GPU rungs, `layer` names one (default: every convolution),
    `device` is opencl or cuda (default: the CUDA GPU that is here, or one that is assumed),
    `source` is for the kernels' source instead, and `precision` for rungs with a choice.
    """
    chosen = find(str(rung)).at(one_of("precision", precision, PRECISIONS))
    size = positive_or_none("batch", batch)
    on = None if device is None else device_of(device)
    if chosen.precisions and CPU.kind not in chosen.devices:
        whole = chosen.cut is whole_network
        for name, value in (("asm", asm), ("layer", layer), ("batch", None if whole else size)):
            if value is not None:
                raise TilewrightError(f"--{name} is not for rung {chosen.name!r}")
        network = load(net, weights)
        found = explain_generated(chosen, network, on, size, source)
    elif chosen.convolutions is not None:
        if asm is not None:
            raise TilewrightError(f"--asm is for the rung 'fused'; {chosen.name!r} has --source")
        network = load(net, weights)
        found = explain_kernels(chosen, network, layer, on, size, source)
    else:
        for name, given in (("layer", layer), ("device", on), ("source", source or None)):
            if given is not None:
                raise TilewrightError(f"--{name} is for GPU rungs, and {chosen.name!r} is none")
        chosen = choose(CPU, chosen.name, precision)
        network = prepare(net, weights, None, images=1).network
        found = explain_cpu(chosen, network, size, asm)
    made = ExplainRecord(
        network=network.name,
        rung=chosen.label,
        idea=chosen.idea,
        target=found.target,
        batch=found.batch,
        peak_flops=found.peak,
        pieces=found.pieces,
        code=found.code,
        environment=environment.fingerprint(),
    )
    return ExplainResult(made, found.shown if found.code is None else (found.code,))
