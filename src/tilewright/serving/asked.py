"""A call like one before, of arrays that Python is asked of: what they say is compared as a whole.

So it is with libraries that have no table of C functions (`again.py`), and where images and outputs
are of two libraries.
"""

from __future__ import annotations

from typing import Any

from tilewright.model.layers import Shape
from tilewright.serving.gpu_arrays import Facts, Kind, held_of
from tilewright.serving.launches import Launches, Outcome


class Asked:
    """Launches on arrays that say what those of a call said; which are not kept."""

    arrays = None  # such that machine code is asked of images and outputs

    def __init__(
        self,
        launches: Launches,
        images: tuple[Kind, Facts, int, int],
        outputs: tuple[Kind, Facts, int, int],
        out_type: type,
        results: Shape,
    ) -> None:
        """Of images and outputs: their kind, what they say, the bytes of their memory, and what
        its address must be a multiple of."""
        self.launches, self.out_type, self.results = launches, out_type, results
        self.kind, self.facts, self.size, self.boundary = images
        self.make = self.kind.again(results)  # calls are known again on their stream alone
        self.out_kind, self.out_facts, self.out_size, self.out_boundary = outputs

    def __call__(self, held: Any, out: Any, stream: int, given: int | None) -> Any:
        """Outputs, or the outcome; None, and nothing is done, if these arrays differ."""
        address, facts = self.kind.look(held)
        if facts != self.facts or address % self.boundary:
            return None
        if out is None:
            out, target = self.make(given)
        else:
            if type(out) is not self.out_type:
                return None
            kind = self.out_kind
            out_held = held_of(kind, out, stream) if kind.adopts else out
            if out_held is None:
                return None
            target, facts = kind.look(out_held)
            if (
                facts != self.out_facts
                or target % self.out_boundary
                or (target < address + self.size and address < target + self.out_size)
            ):
                return None
        error = self.launches.launch(address, target, stream)
        return Outcome(error, out) if error else out
