"""What `kernel check` tries: few convolutions that catch much, in seconds.

Every shape has to be compiled, which takes the most time: there are few, and each is odd in several
ways. Together they have windows of all kinds (rectangular, strides that differ, padding on one axis
alone, larger than the picture's half), one channel and many, planes smaller than a tile, a row more
than 16 and 32, more filters than 32; then some networks' layers, and a large batch. The kinds of
numbers are those of the whole proof (`tilewright.truth.verify`), the most telling ones first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tilewright.model.layers import Convolution, Shape
from tilewright.model.network import Network, Stage
from tilewright.precision import Precision
from tilewright.runtime.dialect import LARGEST_GRID_Z
from tilewright.truth.trials import Calls, Generator, Trial, layer_trials, pixels_trial

SHAPES: tuple[tuple[Shape, Convolution], ...] = (
    ((3, 11, 13), Convolution(5, 3, padding=1)),
    ((2, 17, 19), Convolution(7, (3, 5), stride=(2, 3), padding=(1, 0))),
    ((33, 6, 5), Convolution(17, 3, padding=2)),
    ((2, 24, 21), Convolution(35, 5)),
    ((4, 35, 18), Convolution(3, (5, 2), stride=2, padding=(2, 1), bias=False)),
    ((1, 9, 37), Convolution(1, 1)),
)
TELLING_SHAPES = SHAPES[:2]
# Exact sums first: what is wrong shows as a difference of whole numbers.
TELLING = "whole numbers, large inputs"
KINDS = (
    *(TELLING, "whole numbers, large weights", "impulse weights", "covering weights"),
    *("real numbers", "NaN and infinity"),
)
FEW_LAYERS = 2  # of each network, where there are several
LAYER_KINDS = (TELLING, "real numbers")
LAYER_CALLS = ((0, 1), (2,))
# Batches that divide nothing, one of them large.
BATCHES = (37, 1031, 1, 130)
# More images than a grid has blocks along z, of a layer with next to nothing to compute.
TINY = ((2, 3, 2), Convolution(3, (2, 1)))
MANY_IMAGES = (LARGEST_GRID_Z + 4464, 3)


def quick(
    precision: Precision, networks: Sequence[Network], generator: Generator
) -> Iterator[Trial]:
    """The odd shapes with all kinds of numbers, a large batch, then the networks' convolutions."""
    for shape, layer in SHAPES:
        yield from _chosen(shape, layer, KINDS, precision, generator)
    shape, layer = SHAPES[0]
    for trial in _chosen(shape, layer, (TELLING,), precision, generator):
        yield replace(trial, inputs="large batches", calls=_batches(BATCHES, len(trial.images)))
    seen = {SHAPES[0]}
    for network in networks:
        for stage in _looked_at(network, FEW_LAYERS if len(networks) > 1 else None):
            assert isinstance(stage.layer, Convolution)
            if (stage.input_shape, stage.layer) in seen:
                continue
            seen.add((stage.input_shape, stage.layer))
            for trial in _chosen(stage.input_shape, stage.layer, LAYER_KINDS, precision, generator):
                where = f"{trial.inputs} ({stage.name} of {network.name})"
                yield replace(trial, inputs=where, calls=LAYER_CALLS)


def first_look(network: Network, precision: Precision, generator: Generator) -> Iterator[Trial]:
    """What a short ladder tries: an odd shape, the network's convolutions, and the whole of it."""
    shape, layer = SHAPES[0]
    yield from _chosen(shape, layer, (TELLING, "covering weights"), precision, generator)
    seen = {(s.input_shape, s.layer) for s in network.stages if isinstance(s.layer, Convolution)}
    for shape, convolution in sorted(seen, key=str):
        for trial in _chosen(shape, convolution, LAYER_KINDS, precision, generator):
            yield replace(trial, calls=LAYER_CALLS)
    yield pixels_trial(network, 1, generator)


def _looked_at(network: Network, most: int | None) -> list[Stage]:
    """A network's convolutions; of many, those whose windows and strides differ come first."""
    stages = [stage for stage in network.stages if isinstance(stage.layer, Convolution)]
    alike: dict[object, Stage] = {}
    for stage in stages:
        assert isinstance(stage.layer, Convolution)
        alike.setdefault((stage.layer.kernel, stage.layer.stride), stage)
    different = list(alike.values())
    chosen = [*different, *(stage for stage in stages if stage not in different)][:most]
    return [stage for stage in stages if stage in chosen]


def many_images(precision: Precision, generator: Generator) -> Iterator[Trial]:
    """A call with more images than one launch can have along an axis of its grid."""
    for trial in _chosen(*TINY, (TELLING,), precision, generator):
        yield replace(trial, inputs="many images", calls=_batches(MANY_IMAGES, len(trial.images)))


def telling(precision: Precision, generator: Generator) -> Iterator[Trial]:
    """The least that says whether a kernel is right: two shapes, exact sums."""
    for shape, layer in TELLING_SHAPES:
        yield from _chosen(shape, layer, (TELLING,), precision, generator)


def _chosen(
    shape: Shape,
    layer: Convolution,
    kinds: Sequence[str],
    precision: Precision,
    generator: Generator,
) -> list[Trial]:
    made = {trial.inputs: trial for trial in layer_trials(shape, layer, precision, generator)}
    return [made[kind] for kind in kinds]


def _batches(sizes: Sequence[int], images: int) -> Calls:
    """Calls in which no image follows itself, at its place or at the next."""
    return tuple(
        tuple((number + place) % images for place in range(size))
        for number, size in enumerate(sizes)
    )
