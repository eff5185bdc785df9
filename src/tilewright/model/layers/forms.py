"""The ways in which a layer can be computed, and where each kind's code for one of them is found.

A layer's class says which forms it has. Element-wise kinds bring their own; the code of the others
stands in the rooms of those who run it, each in the table (`Table`) of its form. What is missing is
an error that names the kind and the form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from tilewright.errors import TilewrightError

if TYPE_CHECKING:
    from tilewright.model.layers.base import Layer
    from tilewright.model.network import Stage

Form = Literal["truth", "loops", "numpy", "dialect", "llvm", "cuda", "torch", "onnx"]
FORMS: dict[Form, str] = {
    "truth": "float64 truth",
    "loops": "plain loops",
    "numpy": "NumPy form",
    "dialect": "kernel in the dialect",
    "llvm": "LLVM form",
    "cuda": "CUDA form for whole-network kernels",
    "torch": "PyTorch form",
    "onnx": "ONNX form",
}
EVERY: frozenset[Form] = frozenset(FORMS)

F = TypeVar("F")


class MissingForm(TilewrightError):
    """A layer cannot be computed in a way that was asked for."""


def without(layer: Layer, form: Form) -> MissingForm:
    """The error of a layer that has no such form."""
    return MissingForm(
        f"layers of kind {layer.kind!r} ({type(layer).__name__}) have no {FORMS[form]}"
    )


def require(stage: Stage, form: Form) -> None:
    """MissingForm if a layer has no such form."""
    if form not in stage.layer.forms:
        raise _missing(stage, form)


def _missing(stage: Stage, form: Form) -> MissingForm:
    return MissingForm(f"{stage.name}: {without(stage.layer, form)}")


class Table(Generic[F]):
    """What there is for each kind of layer. A subclass is another kind, but where a whole family
    is served by one (`family`)."""

    def __init__(self, form: Form) -> None:
        self.form: Form = form
        self.kinds: dict[type[Layer], F] = {}
        self.families: dict[type[Layer], F] = {}

    def of(self, *kinds: type[Layer]) -> Callable[[F], F]:
        """Enter what serves these kinds, and no subclasses of them."""

        def enter(serving: F) -> F:
            self.kinds.update(dict.fromkeys(kinds, serving))
            return serving

        return enter

    def family(self, kind: type[Layer]) -> Callable[[F], F]:
        """Enter what serves all subclasses of a kind that have the form."""

        def enter(serving: F) -> F:
            self.families[kind] = serving
            return serving

        return enter

    def find(self, stage: Stage) -> F:
        """What serves a layer; MissingForm if nothing does."""
        layer = stage.layer
        if type(layer) in self.kinds:
            return self.kinds[type(layer)]
        for kind, serving in self.families.items():
            if isinstance(layer, kind) and self.form in layer.forms:
                return serving
        raise _missing(stage, self.form)
