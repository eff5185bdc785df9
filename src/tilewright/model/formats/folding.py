"""A draft into a network: helpers are folded into the layers around them, the rest keeps its order.

Affine parts (batch normalisation and its like) go into the convolution or the fully connected layer
before them if nobody else reads that, into scale and shift of pixels at the input, or, in a row,
into the fully connected layer behind; what remains is a convolution of its own with a 1x1 kernel
for every channel, or of a row a fully connected layer. Weights are computed in float64 and rounded
once; what is multiplied by one keeps its bits. Zeros around a picture become the padding of those
that read it, or else of a convolution of their own with a 1x1 kernel for every channel.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.model.formats.draft import Draft
from tilewright.model.formats.folded import entering, own_padding, padded, scaled, scaled_row
from tilewright.model.formats.parts import Above, Affine, Erf, Exp, Pad, Part, Value
from tilewright.model.layers import (
    Convolution,
    Flatten,
    FullyConnected,
    Pixels,
)
from tilewright.model.network import Network

MOST_OF_ROWS = 1 << 22  # weights that scale rows of features


def finish(draft: Draft, output: Value, name: str) -> Network:
    """The network of which a draft's value is the output."""
    if output.last:
        raise TilewrightError("its output is a picture with channels last")
    if output.split:
        raise TilewrightError("its output has channels in groups")
    if output.flat:
        raise TilewrightError("its output is a picture whose rows are one behind the other")
    if output.expanded:
        raise TilewrightError("its output has values that were repeated")
    if output.rows is not None:
        raise TilewrightError("its output is a row of a picture with channels last")
    graph = _Graph(draft, output.part)
    graph.fold()
    return graph.network(name, draft.notes)


class _Graph:
    """Parts, and who reads each; what nobody reads is left out, as all but the last of patterns."""

    def __init__(self, draft: Draft, output: int) -> None:
        parts = self.parts = list(draft.parts)
        self.normalises = draft.normalises
        self.output = output
        self.folded: list[str] = []
        self.of_rows = 0  # weights that scale rows
        self.readers: dict[int, set[int]] = {output: set()}
        for index in range(len(parts) - 1, 0, -1):
            for source in parts[index].sources if index in self.readers else ():
                self.readers.setdefault(source, set()).add(index)

    def fold(self) -> None:
        for index in range(1, len(self.parts)):
            if isinstance(self.parts[index].layer, Affine) and self._read(index):
                self._fold_affine(index)
        for index in range(1, len(self.parts)):
            part = self.parts[index]
            if not self._read(index):
                continue
            while any(isinstance(self.parts[at].layer, Pad) for at in self.parts[index].sources):
                self._fold_padding(index)
            if isinstance(part.layer, FullyConnected):
                self._fold_flatten(index)
        self._own_padding(None)

    def network(self, name: str, notes: dict[str, str]) -> Network:
        kept = [index for index in range(1, len(self.parts)) if self._read(index)]
        for index in kept:
            part = self.parts[index]
            if isinstance(part.layer, Pad | Erf | Exp | Above):
                raise TilewrightError(
                    f"{part.name}: nothing that takes it can do it ({part.layer.kind})"
                )
        places = {0: 0, **{index: place for place, index in enumerate(kept, start=1)}}
        parts = [self._own_convolution(self.parts[index]) for index in kept]
        layers = tuple(part.layer for part in parts)
        if not layers:
            raise TilewrightError("it has no layers")
        pixels = self.parts[0].layer
        assert isinstance(pixels, Pixels)
        sources = tuple(tuple(places[source] for source in part.sources) for part in parts)
        network = Network(name, pixels, layers, sources=sources)
        weights = {
            f"{stage.name}.{role}": value
            for stage, part in zip(network.stages[1:], parts, strict=True)
            for role, value in part.weights.items()
        }
        if self.folded:
            notes = {**notes, "folded": ", ".join(self.folded)}
        return network.with_parameters(weights, notes)

    def _read(self, index: int) -> bool:
        return index == self.output or bool(self.readers.get(index))

    def _alone(self, index: int) -> bool:
        """Whether one part reads it, and nobody outside."""
        return index != self.output and len(self.readers[index]) == 1

    def _bypass(self, index: int) -> None:
        """Whoever read a part reads its source."""
        (source,) = self.parts[index].sources
        for reader in self.readers.pop(index, set()):
            part = self.parts[reader]
            taken = tuple(source if each == index else each for each in part.sources)
            self.parts[reader] = replace(part, sources=taken)
            self.readers[source].add(reader)
        self.readers[source].discard(index)
        if self.output == index:
            self.output = source

    def _fold_affine(self, index: int) -> None:
        part = self.parts[index]
        affine = part.layer
        assert isinstance(affine, Affine)
        (source,) = part.sources
        before = self.parts[source]
        if affine.nothing:
            self._bypass(index)
        elif isinstance(before.layer, Convolution | FullyConnected) and self._alone(source):
            self.parts[source] = scaled(before, before.layer, affine)
            self._folded(index)
        elif isinstance(before.layer, Affine) and self._alone(source):
            name = before.name if before.layer.norm or not affine.norm else part.name
            composed = before.layer.then(affine)
            self.parts[source] = replace(before, name=name, layer=composed)
            self._bypass(index)
            if composed.nothing:
                self._bypass(source)
        elif isinstance(before.layer, Pixels) and self.normalises and self._alone(source):
            self.parts[source] = replace(before, layer=entering(before.layer, affine))
            self._folded(index)
        elif len(part.shape) == 1:
            self._fold_forward(index, affine)

    def _folded(self, index: int) -> None:
        part = self.parts[index]
        if isinstance(part.layer, Affine) and part.layer.norm:
            self.folded.append(part.name)
        self._bypass(index)

    def _fold_forward(self, index: int, affine: Affine) -> None:
        """Into the one fully connected layer that reads it."""
        place = min(self.readers[index], default=index)
        reader = self.parts[place]
        if self._alone(index) and isinstance(reader.layer, Affine):
            # That one is next, and goes on with both.
            both = affine.then(reader.layer)
            self.parts[place] = replace(reader, layer=both)
            self._bypass(index)
            return
        if not self._alone(index) or not isinstance(reader.layer, FullyConnected):
            return  # a layer of its own
        weight = np.asarray(reader.weights["weight"], np.float64)
        shift = weight @ affine.shift + reader.weights.get("bias", np.array(0.0))
        weights = {"weight": weight * affine.scale, "bias": shift}
        layer = replace(reader.layer, bias=True)
        self.parts[place] = replace(reader, layer=layer, weights=weights)
        self._folded(index)

    def _fold_padding(self, index: int) -> None:
        """Zeros around the picture that a part takes become its own padding."""
        part = self.parts[index]
        source = part.sources[0]
        around = self.parts[source]
        layer = None
        if isinstance(around.layer, Pad) and len(part.sources) == 1:
            before = self.parts[around.sources[0]]
            layer = padded(part.layer, around.layer, before.layer)
        if layer is None:
            self._own_padding(index)
            return
        self.parts[index] = replace(part, layer=layer, sources=around.sources)
        self.readers[source].remove(index)
        self.readers[around.sources[0]].add(index)
        if not self._read(source):
            self.readers[around.sources[0]].remove(source)

    def _own_padding(self, reader: int | None) -> None:
        """What a part takes, or the network gives, that is a picture with something around it, and
        not the reader's own padding, becomes a layer."""
        taken = (self.output,) if reader is None else self.parts[reader].sources
        for index in taken:
            part = self.parts[index]
            if isinstance(part.layer, Pad):
                self.parts[index] = own_padding(part, part.layer)

    def _fold_flatten(self, index: int) -> None:
        """A fully connected layer flattens by itself."""
        (source,) = self.parts[index].sources
        if isinstance(self.parts[source].layer, Flatten) and self._alone(source):
            self._bypass(source)

    def _own_convolution(self, part: Part) -> Part:
        """An affine part that nobody took."""
        if not isinstance(part.layer, Affine):
            return part
        if part.layer.norm:
            self.folded.append(f"{part.name} (into a convolution of its own)")
        channels = part.shape[0]
        if len(part.shape) == 1:
            self.of_rows += channels**2
            if self.of_rows > MOST_OF_ROWS:
                raise TilewrightError(
                    f"{part.name}: scales a row of {channels:,} features beside no fully connected "
                    "layer"
                )
            return scaled_row(part, part.layer)
        weight = part.layer.scale.reshape(-1, 1, 1, 1)
        weights = {"weight": weight, "bias": part.layer.shift}
        return replace(part, layer=Convolution(channels, 1, groups=channels), weights=weights)
