"""What `tilewright.explain` gives, and what its parts find for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.results.explain import ExplainRecord, PieceRecord
from tilewright.verbs.result import Result, Value, table_of

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Found:
    """What was found of a rung: its pieces, and how they are shown; or the code asked for."""

    target: str
    batch: int | None
    pieces: tuple[PieceRecord, ...] = ()
    shown: tuple[RenderableType, ...] = ()
    peak: float | None = None
    code: str | None = None


@dataclass(frozen=True, repr=False, eq=False)
class ExplainResult(Result[ExplainRecord]):
    """What a rung does with a network: tiles, arithmetic, memory, and what limits it.

    `print` shows the code, where that was asked for.
    """

    shown: tuple[RenderableType, ...]

    @property
    def headline(self) -> str:
        return f"{self.record.rung} on {self.record.network}: {self.record.idea}"

    def report(self) -> Iterator[RenderableType]:
        return iter(self.shown)

    def rows(self) -> list[dict[str, Value]]:
        """A row a kernel, or a group of layers."""
        return table_of(self.record.pieces)

    def __str__(self) -> str:
        return super().__str__() if self.record.code is None else self.record.code
