"""A network: an immutable sequence of layers with every shape known, and its parameters."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.model.layers import Layer, Pixels, Shape, dimensions

Parameters = Mapping[str, NDArray[np.float32]]
# Of parameters or outputs of one layer; this is about small networks.
LARGEST_TENSOR = 2**30
# Of a network; every table has a row for each.
MOST_LAYERS = 5000
NONE: Parameters = MappingProxyType({})


@dataclass(frozen=True)
class Stage:
    """A layer at its place in a network: named, and with its shapes known."""

    index: int
    name: str
    layer: Layer
    input_shape: Shape
    output_shape: Shape

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

    @property
    def flops(self) -> int:
        """Floating-point operations for one image."""
        return self.layer.flops(self.input_shape)

    @property
    def inside_flops(self) -> int:
        """The same without the taps of a convolution that fall outside the image."""
        return self.layer.inside_flops(self.input_shape)

    @property
    def bytes(self) -> int:
        """The fewest bytes one image moves: input, parameters and output once, as float32.

        Pixels come in as one byte each. Flattening moves nothing.
        """
        if not self.layer.computes:
            return 0
        values = math.prod(self.output_shape) + self.parameter_count
        return 4 * values + self.layer.input_bytes * math.prod(self.input_shape)


# Consecutive ones.
Stages = tuple[Stage, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Network:
    """What is computed; knows nothing of devices.

    `stages[0]` is the input, `stages[i]` is `layers[i - 1]`. `parameters` is empty until weights
    are known, else complete: `with_parameters` is the way to set them and checks every name,
    shape and value. `notes` says where the weights came from (recipe, accuracy), as text.
    A network can be pickled and copied; what comes back is as read-only as what went in.
    """

    name: str
    input: Pixels
    layers: tuple[Layer, ...]
    parameters: Parameters = field(default_factory=lambda: NONE)
    notes: Mapping[str, str] = field(default_factory=dict)
    stages: tuple[Stage, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(self.layers))
        if not self.layers:
            raise TilewrightError(f"network {self.name!r} has no layers")
        check_depth(len(self.layers))
        object.__setattr__(self, "stages", _stages(self.name, self.input, self.layers))

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
        return _restored, (self.name, self.input, self.layers, parameters, notes)

    @property
    def output_shape(self) -> Shape:
        """What an image becomes."""
        return self.stages[-1].output_shape

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


def _stages(network: str, pixels: Pixels, layers: Sequence[Layer]) -> tuple[Stage, ...]:
    """Name every layer by its kind, numbered where there are several, and infer its shapes."""
    total = Counter(layer.kind for layer in layers)
    seen: Counter[str] = Counter()
    shape = pixels.shape
    if math.prod(shape) > LARGEST_TENSOR:
        raise TilewrightError(f"network {network!r}: more than {LARGEST_TENSOR:,} pixels an image")
    stages = [Stage(0, "input", pixels, shape, shape)]
    for index, layer in enumerate(layers, start=1):
        if isinstance(layer, Pixels):
            raise TilewrightError(f"network {network!r}: layer {index} is a second input")
        seen[layer.kind] += 1
        name = layer.kind + (str(seen[layer.kind]) if total[layer.kind] > 1 else "")
        try:
            after = layer.output_shape(shape)
        except TilewrightError as error:
            raise TilewrightError(
                f"network {network!r}, layer {index} ({name}): {error}"
            ) from error
        stage = Stage(index, name, layer, shape, after)
        if max(stage.parameter_count, math.prod(after)) > LARGEST_TENSOR:
            raise TilewrightError(
                f"network {network!r}, layer {index} ({name}): more than {LARGEST_TENSOR:,} values"
            )
        stages.append(stage)
        shape = after
    return tuple(stages)


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
    parameters: Mapping[str, NDArray[np.generic]],
    notes: Mapping[str, str],
) -> Network:
    """A network out of what was pickled or copied of it, its parameters checked once more."""
    network = Network(name, pixels, layers, notes=notes)
    return network.with_parameters(parameters, notes) if parameters else network
