"""The part of `explain` for CUDA kernels that are generated: nothing is run, no GPU is needed."""

from __future__ import annotations

import argparse

from tilewright.cli import output
from tilewright.errors import TilewrightError
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.cut import cut, sources
from tilewright.fuse.cuda.explain import explain
from tilewright.fuse.cuda.run import kernel_name, kernel_text
from tilewright.model.load import load
from tilewright.rungs.gpu.explain import target
from tilewright.rungs.rung import Rung
from tilewright.views.explain_fused import report


def explain_fused(rung: Rung, arguments: argparse.Namespace) -> int:
    for option in ("asm", "layer", "batch"):
        if getattr(arguments, option) is not None:
            raise TilewrightError(f"--{option} is not for rung {rung.name!r}")
    network = load(arguments.net, arguments.weights)
    at = target(arguments.device, rung)
    precision = rung.precision.name
    facts = []
    # Single layers that are no convolutions are computed as on all other rungs.
    generated = [part for part in rung.cut(network) if len(part) > 1 or part[0].kind == "conv"]
    if not generated:
        raise TilewrightError(
            f"{network.name!r} has no convolution for rung {rung.name!r} to compute"
        )
    for stages in generated:
        kernels = cut(stages, ARITHMETICS[precision], at.gpu.capability)
        if arguments.source:
            read = sources(kernels, "uint8" if stages[0].kind == "input" else "float32")
            for plan, source in zip(kernels, read, strict=True):
                name = kernel_name(rung.name, precision, plan, len(kernels) == 1)
                print(kernel_text(plan, name, stages[0].layer, source))
            continue
        facts += explain(kernels, stages, rung.name, precision, at.gpu.architecture)
    if not arguments.source:
        output.tables(report(rung, network, facts, at), arguments.format)
    return 0
