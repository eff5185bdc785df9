"""What a layer is called in ONNX, as plain data: `onnx` itself is needed only to write a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Names of values: what the layer reads, the second of it and all of it where that is several, and
# what the node before this one made (the layer's input, for the first).
INPUT, SECOND, INPUTS, BEFORE = "input", "second", "inputs", "before"


@dataclass(frozen=True)
class OnnxNode:
    """One node: it reads `inputs`, then the layer's parameters if it `takes_parameters`, then
    constants: each a number, then `whole` numbers as one row. A layer's output is that of its last
    node."""

    operator: str
    attributes: Mapping[str, int | float | tuple[int, ...]] = field(default_factory=dict)
    inputs: tuple[str, ...] = (BEFORE,)
    takes_parameters: bool = False
    constants: tuple[float, ...] = ()
    whole: tuple[int, ...] = ()
