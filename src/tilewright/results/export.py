"""Records for other programs: a table of everything that was timed, or the records themselves."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator

from tilewright.errors import TilewrightError
from tilewright.results import document
from tilewright.results.record import Record

FORMATS = ("csv", "json", "parquet")
Numbered = Iterable[tuple[int, Record]]
Cell = str | int | float | list[float] | None
COLUMNS = (
    *("id", "date", "verb", "network", "device", "device_name", "machine", "tilewright"),
    *("timed", "samples", "median_seconds_an_image", "low_seconds_an_image"),
    *("high_seconds_an_image", "seconds_an_image"),
)


def rows(records: Numbered) -> Iterator[dict[str, Cell]]:
    """A row for everything that a record timed: each rung of a ladder, each layer of a run.

    Raw samples are in one cell; low and high are the median's 95 % interval.
    """
    for number, record in records:
        for name, sample in record.timings.items():
            low, high = sample.interval.ends or (None, None)
            cells = (
                number, record.environment.date, record.verb(),
                record.network, record.device, record.device_name, record.environment.machine,
                record.environment.tilewright, name, len(sample.seconds), sample.median, low, high,
                list(sample.seconds),
            )  # fmt: skip
            yield dict(zip(COLUMNS, cells, strict=True))


def to_csv(records: Numbered) -> bytes:
    """Raw samples are separated by spaces."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows(records):
        samples = row["seconds_an_image"]
        assert isinstance(samples, list)
        writer.writerow({**row, "seconds_an_image": " ".join(map(repr, samples))})
    return text.getvalue().encode()


def to_json(records: Numbered) -> bytes:
    kept = [{"id": number, **document.plain(record)} for number, record in records]
    made = {"schema": "tilewright.history/1", "records": kept}
    return (json.dumps(made, indent=2, allow_nan=False) + "\n").encode()


def to_parquet(records: Numbered) -> bytes:
    """The rows of the CSV, with the types of their columns."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise TilewrightError(
            "Parquet needs pyarrow: pip install 'tilewright[parquet]', or export csv or json"
        ) from error
    whole, number, text = pyarrow.int64(), pyarrow.float64(), pyarrow.string()
    kinds = dict.fromkeys(COLUMNS, text)
    kinds |= dict.fromkeys(("id", "samples"), whole)
    kinds |= dict.fromkeys((name for name in COLUMNS if "_seconds_" in name), number)
    kinds["seconds_an_image"] = pyarrow.list_(number)
    made = pyarrow.Table.from_pylist(list(rows(records)), pyarrow.schema(list(kinds.items())))
    stream = io.BytesIO()
    parquet.write_table(made, stream)
    return stream.getvalue()


def export(records: Numbered, form: str) -> bytes:
    makers = dict(zip(FORMATS, (to_csv, to_json, to_parquet), strict=True))
    return makers[form](records)
