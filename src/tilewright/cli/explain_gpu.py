"""The part of `explain` for GPU rungs: nothing is run, and no GPU is needed."""

from __future__ import annotations

import argparse

from tilewright.cli import output
from tilewright.errors import TilewrightError
from tilewright.model.load import load
from tilewright.rungs import DEFAULT_BATCH
from tilewright.rungs.gpu.explain import chosen, designed, explain, target
from tilewright.rungs.rung import Rung
from tilewright.views import explain_gpu as view


def explain_gpu(rung: Rung, arguments: argparse.Namespace) -> int:
    if arguments.asm is not None:
        raise TilewrightError(f"--asm is for the rung 'fused'; {rung.name!r} has --source")
    network = load(arguments.net, arguments.weights)
    stages = chosen(network, arguments.layer)
    at = target(arguments.device, rung)
    if arguments.source:
        for stage in stages:
            print(view.sources(stage, designed(rung, stage, at.limits)))
        return 0
    images = arguments.batch or DEFAULT_BATCH
    facts = explain(rung, stages, at, images)
    output.tables(view.report(rung, network, facts, at, images), arguments.format)
    return 0
