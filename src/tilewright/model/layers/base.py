"""What every layer has: frozen facts, with shapes, arithmetic and rounding errors counted.

A shape is that of one image, without the batch: `(channels, height, width)`, or `(features,)`
after a fully connected layer. Activations are stored channel, y, x.

FLOP are counted the customary way: two for each multiply-add of a convolution or a fully
connected layer (the bias is where the sum starts, so it adds none), one for each addition of
an average pooling. Comparisons, tanh and softmax count as none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tilewright.model.layers.forms import Form, without
from tilewright.model.layers.onnx_node import OnnxNode
from tilewright.model.layers.rounding import Array, Truth
from tilewright.model.layers.sizes import Shape
from tilewright.precision import Precision

if TYPE_CHECKING:
    from torch import Tensor

# A whole number from the first to the last, drawn.
Draw = Callable[[int, int], int]
# A layer's parameters by role.
Weights = Mapping[str, NDArray[np.float32]]
# The shape of its input, and a layer.
Example = tuple[Shape, "Layer"]


@dataclass(frozen=True)
class Layer:
    """One operation. `kind` groups layers in tables; several classes may share one."""

    kind: ClassVar[str]
    # Its name in descriptions of networks; none for what is no layer there.
    type: ClassVar[str] = ""
    # What it does in a few words, for profiles.
    words: ClassVar[str] = ""
    # The ways in which it can be computed: what a subclass can be is for that to say.
    forms: ClassVar[frozenset[Form]] = frozenset()
    # Whether there is anything to compute, or the same memory is read with another shape.
    computes: ClassVar[bool] = True
    # Bytes of an input value.
    input_bytes: ClassVar[int] = 4

    @property
    def specials(self) -> frozenset[str]:
        """What is out of the ordinary about it, in words: a rung may have no code for that."""
        return frozenset()

    # What the verifier must know of values that go through. Whether they come out as they were,
    # perhaps not all of them; whether negative ones are told apart; the powers of two between which
    # inputs are (None: all); the largest output; whether inputs near the end of float32 have a
    # result within it.
    passes_on: ClassVar[bool] = False
    passes_negative: ClassVar[bool] = True
    fitting: ClassVar[tuple[int, int] | None] = None
    largest: ClassVar[float] = float("inf")
    takes_huge: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "forms" not in cls.__dict__:
            cls.forms = frozenset()

    def output_shape(self, shape: Shape) -> Shape:
        """The shape this layer turns `shape` into; TilewrightError if it cannot take it."""
        return shape

    def parameter_shapes(self, shape: Shape) -> dict[str, Shape]:
        """The shapes of this layer's parameters by role (`weight`, `bias`)."""
        return {}

    def flops(self, shape: Shape) -> int:
        """Floating-point operations for one image."""
        return 0

    def inside_flops(self, shape: Shape) -> int:
        """The same without taps outside the image, whose products are zero."""
        return self.flops(shape)

    @property
    def summary(self) -> str:
        """The layer's settings in a few characters, for tables and errors."""
        return ""

    def truth(self, x: Array, error: Array, weights: Weights, precision: Precision) -> Truth:
        """The output for a batch `x` whose values are uncertain by `error`."""
        raise without(self, "truth")

    def torch(self, *parameters: Tensor) -> Callable[[Tensor], Tensor]:
        """The layer as PyTorch computes it, on tensors of any device."""
        raise without(self, "torch")

    def onnx(self) -> tuple[OnnxNode, ...]:
        """The layer as ONNX names it."""
        raise without(self, "onnx")

    @classmethod
    def examples(cls) -> list[Example]:
        """Layers to try alone, at the edges of what is allowed and of tiles of 16 and 32."""
        return []

    @classmethod
    def drawn(cls, draw: Draw) -> list[Example]:
        """Some more, drawn anew each time."""
        return []

    def inputs(
        self, shape: Shape, largest: float, generator: np.random.Generator
    ) -> dict[str, NDArray[Any]]:
        """Values of this shape that this kind, more than others, could get wrong, by a name."""
        return {}


@dataclass(frozen=True)
class Planar(Layer):
    """Every channel by itself, but not every place: what comes out at one may be from others of
    the same channel. Rows of the output can be computed apart."""
