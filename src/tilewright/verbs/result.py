"""What verbs give back: a record, shown as text or HTML, as JSON, or as a table of rows.

Views are imported when something is shown: who only computes needs none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from tilewright.errors import TilewrightError
from tilewright.files import history_file
from tilewright.results.record import Record

if TYPE_CHECKING:
    from rich.console import RenderableType

Kind = TypeVar("Kind", bound=msgspec.Struct)
Kept = TypeVar("Kept", bound=Record)
# A cell of a table of rows.
Value = str | int | float | bool | None
FRAMES = ("pandas", "polars")
LAYERS = "layers"


@dataclass(frozen=True, repr=False, eq=False)
class Result(ABC, Generic[Kind]):
    """What a verb found. `print` shows what the command prints, a notebook its tables.

    `record` has all of it as typed data: what `to_json` writes.
    """

    record: Kind

    @property
    @abstractmethod
    def headline(self) -> str:
        """What it came to, in a few words."""

    @abstractmethod
    def report(self) -> Iterator[RenderableType]:
        """What the command prints: lines and tables."""

    @abstractmethod
    def rows(self) -> list[dict[str, Value]]:
        """The main table as plain values, a dict a row: times in seconds, sizes in bytes."""

    def __str__(self) -> str:
        from tilewright.views import console

        return console.text(self.report())

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.headline}>"

    def _repr_html_(self) -> str:
        from tilewright.views import html

        return html.fragment(self.report())

    def to_json(self) -> str:
        """The JSON that the command writes with --json."""
        from tilewright.results import document

        return document.text(self.record)

    # Both libraries are optional, so neither's type can be named.
    def to_dataframe(self) -> Any:
        """`rows` as a data frame of pandas or, where that is not installed, of polars."""
        for name in FRAMES:
            try:
                library = import_module(name)
            except ModuleNotFoundError as error:
                if error.name != name:
                    raise
            else:
                rows = self.rows()
                names = list(rows[0]) if rows else []
                return library.DataFrame({name: [row[name] for row in rows] for name in names})
        raise TilewrightError(
            "to_dataframe needs pandas or polars, and neither is installed: pip install pandas"
        )


@dataclass(frozen=True, repr=False, eq=False)
class KeptResult(Result[Kept]):
    """A result that `tilewright history` lists and compares, if it is kept."""

    @property
    def headline(self) -> str:
        return f"{self.record.network} on {self.record.device}, {self.record.headline}"

    def keep(self, history: str | Path | None = None) -> int:
        """Keep it in a file (default: the user's own history); its number there."""
        from tilewright.results.history import History

        return History(history_file() if history is None else Path(history)).add(self.record)


def table_of(records: Iterable[msgspec.Struct]) -> list[dict[str, Value]]:
    """Records as rows of the same columns: what is below a field stands under FIELD_NAME.

    Of lists, only the names of layers are a column.
    """
    found = [dict(_cells(msgspec.to_builtins(each), "")) for each in records]
    names = dict.fromkeys(name for row in found for name in row)
    # Where a record is missing in some rows, its name alone is no column.
    columns = [
        name
        for name in names
        if any(row.get(name) is not None for row in found)
        or not any(each.startswith(f"{name}_") for each in names)
    ]
    # A column of numbers has one type: a sum of nothing is a whole number.
    real = {name for row in found for name, value in row.items() if isinstance(value, float)}
    return [{name: _number(row.get(name), name in real) for name in columns} for row in found]


def _number(value: Value, real: bool) -> Value:
    return float(value) if real and isinstance(value, int) else value


def _cells(fields: Mapping[str, object], lead: str) -> Iterator[tuple[str, Value]]:
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _cells(value, f"{lead}{name}_")
        elif value is None or isinstance(value, str | int | float):
            yield f"{lead}{name}", value
        elif name == LAYERS and isinstance(value, tuple | list):
            names = [each for each in value if isinstance(each, str)]
            if len(names) == len(value):
                yield f"{lead}{name}", " ".join(names)
