"""A network: an immutable graph of layers with every shape known, and its parameters."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.model.layers import Join, Layer, Pixels, Shape, dimensions

Parameters = Mapping[str, NDArray[np.float32]]
# For every layer, the indices of the stages whose outputs it takes.
Sources = tuple[tuple[int, ...], ...]
# Of parameters or outputs of one layer; this is about small networks.
LARGEST_TENSOR = 2**30
# Of a network; every table has a row for each.
MOST_LAYERS = 5000
NONE: Parameters = MappingProxyType({})


@dataclass(frozen=True)
class Stage:
    """A layer at its place in a network: named, and with its shapes known.

    `sources` are the indices of the stages whose outputs it takes, of these shapes; the input takes
    its own.
    """

    index: int
    name: str
    layer: Layer
    input_shapes: tuple[Shape, ...]
    output_shape: Shape
    sources: tuple[int, ...]

    @property
    def input_shape(self) -> Shape:
        """The first; most layers have no other."""
        return self.input_shapes[0]

    @property
    def kind(self) -> str:
        return self.layer.kind

    @property
    def parameter_shapes(self) -> dict[str, Shape]:
        """Shapes by the full name a parameter has in files: `conv1.weight`."""
        shapes = self.layer.parameter_shapes(self.input_shape)
        return {f"{self.name}.{role}": shape for role, shape in shapes.items()}

    def weights(self, parameters: Parameters) -> dict[str, NDArray[np.float32]]:
        """Its own of a network's parameters, by role."""
        return {name.rpartition(".")[2]: parameters[name] for name in self.parameter_shapes}

    @property
    def parameter_count(self) -> int:
        return sum(map(math.prod, self.parameter_shapes.values()))

    @cached_property
    def flops(self) -> int:
        """Floating-point operations for one image; asked for at every launch."""
        return self.layer.flops(*self.input_shapes)

    @property
    def inside_flops(self) -> int:
        """The same without the taps of a convolution that fall outside the image."""
        return self.layer.inside_flops(*self.input_shapes)

    @property
    def bytes(self) -> int:
        """The fewest bytes one image moves: input, parameters and output once, as float32.

        Pixels come in as one byte each. Flattening moves nothing.
        """
        if not self.layer.computes:
            return 0
        values = math.prod(self.output_shape) + self.parameter_count
        return 4 * values + self.layer.input_bytes * sum(map(math.prod, self.input_shapes))


# Consecutive ones.
Stages = tuple[Stage, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Network:
    """What is computed; knows nothing of devices.

    `stages[0]` is the input, `stages[i]` is `layers[i - 1]`. They are computed in this order, and
    each takes what some before it gave: `sources`, the one before it where none are given. The last
    one's output is the network's; all others are taken by somebody. `parameters` is empty until
    weights are known, else complete: `with_parameters` is the way to set them and checks every
    name, shape and value. `notes` says where the weights came from (recipe, accuracy), as text.
    A network can be pickled and copied; what comes back is as read-only as what went in.
    """

    name: str
    input: Pixels
    layers: tuple[Layer, ...]
    parameters: Parameters = field(default_factory=lambda: NONE)
    notes: Mapping[str, str] = field(default_factory=dict)
    sources: Sources | None = None
    stages: tuple[Stage, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(self.layers))
        if not self.layers:
            raise TilewrightError(f"network {self.name!r} has no layers")
        check_depth(len(self.layers))
        chain = tuple((index,) for index in range(len(self.layers)))
        sources = chain if self.sources is None else tuple(map(tuple, self.sources))
        object.__setattr__(self, "sources", sources)
        object.__setattr__(self, "stages", _stages(self.name, self.input, self.layers, sources))

    def __repr__(self) -> str:
        """In one line: a network at a prompt must not print its weights."""
        layers = f"{len(self.layers)} layer{'s' if len(self.layers) > 1 else ''}"
        weights = "" if self.parameters or not self.parameter_shapes else " (no weights yet)"
        return (
            f"<Network {self.name!r}: {dimensions(self.input.shape)} to "
            f"{dimensions(self.output_shape)}, {layers}, {self.parameter_count:,} parameters"
            f"{weights}, {self.flops:,} FLOP an image>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # A mapping proxy cannot be pickled, and arrays forget there that they are read-only.
        parameters, notes = dict(self.parameters), dict(self.notes)
        return _restored, (self.name, self.input, self.layers, self.sources, parameters, notes)

    @property
    def output_shape(self) -> Shape:
        """What an image becomes."""
        return self.stages[-1].output_shape

    @property
    def is_chain(self) -> bool:
        """Whether every layer takes what the one before it gave, and nothing else."""
        return all(stage.sources == (stage.index - 1,) for stage in self.stages[1:])

    def readers(self, stage: Stage) -> list[Stage]:
        """The layers that take a layer's output."""
        return [other for other in self.stages if stage.index in other.sources]

    @property
    def parameter_shapes(self) -> dict[str, Shape]:
        """Shapes by the names that parameters have in files, in the order of the layers."""
        return {name: shape for s in self.stages for name, shape in s.parameter_shapes.items()}

    @property
    def parameter_count(self) -> int:
        """How many weights and biases there are."""
        return sum(stage.parameter_count for stage in self.stages)

    @property
    def flops(self) -> int:
        """Floating-point operations for one image, 2 for each multiply-add."""
        return sum(stage.flops for stage in self.stages)

    def bare(self, name: str, layers: int | None = None) -> Network:
        """Under another name and without weights: all of it, or so many layers from the first."""
        assert self.sources is not None  # since it was made
        return Network(name, self.input, self.layers[:layers], sources=self.sources[:layers])

    def with_parameters(
        self, parameters: Mapping[str, NDArray[np.generic]], notes: Mapping[str, str] | None = None
    ) -> Network:
        """The same network with these weights, checked and kept as read-only float32."""
        checked = _checked(self.name, self.parameter_shapes, parameters)
        return replace(self, parameters=checked, notes=dict(notes or {}))


def check_depth(layers: int) -> None:
    """Refuse more layers than a network may have."""
    if layers > MOST_LAYERS:
        raise TilewrightError(f"{layers:,} layers are more than the {MOST_LAYERS:,} that are taken")


def _stages(
    network: str, pixels: Pixels, layers: Sequence[Layer], sources: Sources
) -> tuple[Stage, ...]:
    """Name every layer and infer its shapes."""
    if len(sources) != len(layers):
        raise TilewrightError(
            f"network {network!r}: {len(layers)} layers and what {len(sources)} of them take"
        )
    shape = pixels.shape
    if math.prod(shape) > LARGEST_TENSOR:
        raise TilewrightError(f"network {network!r}: more than {LARGEST_TENSOR:,} pixels an image")
    stages = [Stage(0, "input", pixels, (shape,), shape, ())]
    named = zip(names(layers), layers, sources, strict=True)
    for index, (name, layer, taken) in enumerate(named, start=1):
        if isinstance(layer, Pixels):
            raise TilewrightError(f"network {network!r}: layer {index} is a second input")
        try:
            _check_sources(layer, index, taken)
            shapes = tuple(stages[source].output_shape for source in taken)
            after = layer.output_shape(*shapes)
        except TilewrightError as error:
            raise TilewrightError(
                f"network {network!r}, layer {index} ({name}): {error}"
            ) from error
        stage = Stage(index, name, layer, shapes, after, taken)
        if max(stage.parameter_count, math.prod(after)) > LARGEST_TENSOR:
            raise TilewrightError(
                f"network {network!r}, layer {index} ({name}): more than {LARGEST_TENSOR:,} values"
            )
        stages.append(stage)
    taken_by_somebody = {source for stage in stages for source in stage.sources}
    for stage in stages[:-1]:
        if stage.index not in taken_by_somebody:
            raise TilewrightError(f"network {network!r}: nobody takes the output of {stage.name}")
    return tuple(stages)


def names(layers: Sequence[Layer]) -> list[str]:
    """Every layer by its kind, numbered where there are several of it.

    Kinds whose names end in a number have it after a line: the sixth relu is not a relu6.
    """
    total = Counter(layer.kind for layer in layers)
    seen: Counter[str] = Counter()
    found = []
    for layer in layers:
        seen[layer.kind] += 1
        number = seen[layer.kind]
        if layer.kind[-1].isdigit():
            found.append(f"{layer.kind}_{number}")
        else:
            found.append(f"{layer.kind}{number if total[layer.kind] > 1 else ''}")
    return found


def _check_sources(layer: Layer, index: int, sources: tuple[int, ...]) -> None:
    if isinstance(layer, Join) != (len(sources) > 1) or not sources:
        raise TilewrightError(
            f"takes {'two inputs or more' if isinstance(layer, Join) else 'one input'}, "
            f"not {len(sources)}"
        )
    for source in sources:
        if isinstance(source, bool) or not isinstance(source, int) or not 0 <= source < index:
            raise TilewrightError(f"takes the output of layer {source!r}, which is not before it")


def _checked(
    network: str, shapes: Mapping[str, Shape], given: Mapping[str, NDArray[np.generic]]
) -> Parameters:
    missing = [name for name in shapes if name not in given]
    if missing:
        raise TilewrightError(f"weights for {network!r} lack {', '.join(missing)}")
    surplus = [name for name in given if name not in shapes]
    if surplus:
        raise TilewrightError(f"weights have {', '.join(surplus)}, which {network!r} has not")
    kept = {}
    for name, shape in shapes.items():
        array = np.asarray(given[name])
        if array.shape != shape:
            raise TilewrightError(
                f"weights: {name} is {dimensions(array.shape) or 'a single number'}, "
                f"but {network!r} needs {dimensions(shape)}"
            )
        if array.dtype.kind != "f":
            raise TilewrightError(f"weights: {name} holds {array.dtype}, not floating point")
        with np.errstate(over="ignore"):  # what overflows float32 is caught as infinite below
            values = np.array(array, dtype=np.float32, order="C")
        wrong = np.flatnonzero(~np.isfinite(values))
        if wrong.size:
            place = np.unravel_index(wrong[0], shape)
            raise TilewrightError(
                f"weights: {name}[{', '.join(map(str, place))}] is {array[place]}; "
                f"all must be finite in float32 and {wrong.size} of {values.size} are not"
            )
        values.setflags(write=False)
        kept[name] = values
    return MappingProxyType(kept)


def _restored(
    name: str,
    pixels: Pixels,
    layers: tuple[Layer, ...],
    sources: Sources,
    parameters: Mapping[str, NDArray[np.generic]],
    notes: Mapping[str, str],
) -> Network:
    """A network out of what was pickled or copied of it, its parameters checked once more."""
    network = Network(name, pixels, layers, notes=notes, sources=sources)
    return network.with_parameters(parameters, notes) if parameters else network
