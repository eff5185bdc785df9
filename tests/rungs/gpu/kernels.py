"""Every kernel that the GPU rungs make of some networks, each once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilewright.model.layers import (
    TYPES,
    AveragePool,
    Convolution,
    Elementwise,
    Flatten,
    FullyConnected,
    Layer,
    MaxPool,
    Pixels,
    Softmax,
)
from tilewright.model.network import Network, Stage
from tilewright.rungs import rungs
from tilewright.rungs.gpu.design import Design
from tilewright.rungs.gpu.prepare import layer_design, layer_options
from tilewright.rungs.rung import Rung
from tilewright.runtime.device import CUDA
from tilewright.runtime.dialect import (
    USUAL_CONSTANT_BYTES,
    USUAL_SHARED_BYTES,
    USUAL_THREADS,
    DoesNotFit,
    Limits,
    Source,
)

GPU_RUNGS = [rung for rung in rungs(CUDA) if rung.convolutions is not None]
USUAL = Limits(USUAL_THREADS, USUAL_SHARED_BYTES, USUAL_CONSTANT_BYTES, 10**10, 1)


def chosen_design(stage: Stage, rung: Rung, limits: Limits) -> Design:
    """What a rung itself would launch for a layer on such a device."""
    options = layer_options(stage, rung.convolutions, limits)
    return layer_design(stage, rung.convolutions, options)


def sources(networks: Iterable[Network], limits: Limits = USUAL) -> list[Source]:
    """Kernels that fit, no two with the same text."""
    every = (s for network in networks for rung in GPU_RUNGS for s in _of(rung, network, limits))
    return list({source.complete: source for source in every}.values())


def _of(rung: Rung, network: Network, limits: Limits) -> Iterator[Source]:
    for stage in network.stages:
        if stage.kind == "flatten":
            continue
        try:
            design = chosen_design(stage, rung, limits)
            for work in design.works:
                work.source.check(limits)
        except DoesNotFit:
            continue
        yield from (work.source for work in design.works)


def _network(name: str, shape: tuple[int, int, int], *layers: Layer) -> Network:
    return Network(name, Pixels(shape), layers)


ACTIVATIONS = [kind() for kind in TYPES.values() if issubclass(kind, Elementwise)]
ODD = [
    _network("1x1", (3, 5, 7), Convolution(4, 1)),
    _network("stride 2", (3, 19, 23), Convolution(6, 3, stride=2, padding=1)),
    _network("uneven", (2, 11, 9), Convolution(3, (2, 5), stride=(3, 1), padding=(0, 4))),
    _network("as large as the image", (2, 7, 6), Convolution(5, (7, 6))),
    _network("many channels", (65, 9, 9), Convolution(130, 3, padding=1, bias=False)),
    _network("one of everything", (1, 1, 1), Convolution(1, 1)),
    _network(
        "other layers", (3, 13, 11), AveragePool((3, 2), stride=2), *ACTIVATIONS,
        MaxPool(2, stride=1), Flatten(), FullyConnected(1025), Softmax(),
    ),
]  # fmt: skip
