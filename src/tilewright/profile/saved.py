"""A profile as a file: JSON that comes back as it was, and CSV for spreadsheets.

docs/profile.schema.json describes the JSON.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.files import check_file, reason
from tilewright.profile.result import Ceilings, Layer, Profile
from tilewright.profile.roofline import roofline
from tilewright.profile.tally import Row
from tilewright.profile.wall import PARTS, Wall
from tilewright.trace import Kind

SCHEMA = "tilewright.profile/1"
LARGEST_FILE = 100 * 2**20
# Beyond anything real, and sums of them are finite.
LONGEST_SECONDS, FASTEST, MOST_OPERATIONS = 1e9, 1e20, 1e29
KINDS: tuple[Kind, ...] = (
    "kernel",
    "host",
    "copy",
    "memset",
    "unified",
    "api",
    "layer",
    "profiler",
)
AMOUNTS = ("flops", "input_bytes", "output_bytes", "parameter_bytes")  # of a layer
COLUMNS = (
    *("kind", "name", "layers", "calls", "seconds", "average", "minimum", "maximum"),
    *("bytes", "count", "flop", "least_bytes"),
)


def to_json(profile: Profile) -> dict[str, Any]:
    """Everything, with what follows from it: `rows` by name as printed, `detail` by layers."""
    kept = {
        field.name: getattr(profile, field.name)
        for field in fields(Profile)
        if field.name not in ("rows", "wall", "timed", "layers", "ceilings", "notices")
    }
    return {
        "schema": SCHEMA,
        **kept,
        "layers": [asdict(layer) for layer in profile.layers],
        "notices": list(profile.notices),
        "wall_seconds": profile.wall.seconds,
        "wall_parts": profile.wall.parts,
        "timed_seconds": list(profile.timed),
        "slow_down": profile.slow_down,
        "ceilings": None if profile.ceilings is None else asdict(profile.ceilings),
        "rows": [_row(row) for row in profile.named(*KINDS)],
        "detail": [_row(row) for row in profile.rows],
        "roofline": [
            {
                "name": facts.row.name,
                "layers": list(facts.row.layers),
                "seconds": facts.row.seconds,
                "flop": facts.flops,
                "executed_flop": facts.executed,
                "least_bytes": facts.bytes,
                "flop_per_second": facts.flop_rate,
                "bytes_per_second": facts.byte_rate,
                "share_of_peak": facts.flop_share,
                "share_of_bandwidth": facts.byte_share,
                "limit": facts.limit,
            }
            for facts in roofline(profile)
        ],
    }


def to_csv(profile: Profile) -> str:
    """The rows as printed, by name."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for row in profile.named(*KINDS):
        writer.writerow({**_row(row), "layers": " ".join(row.layers)})
    return text.getvalue()


def read(path: Path) -> Profile:
    """A profile that `tilewright profile --json` wrote."""
    check_file(path)
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise TilewrightError(f"{path} is too large to be a saved profile")
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise TilewrightError(f"cannot read {path}: {reason(error)}") from error
    except (ValueError, RecursionError) as error:
        raise TilewrightError(f"{path} is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise TilewrightError(f"{path} is not a profile saved by `tilewright profile --json`")
    try:
        return from_json(document)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        words = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise TilewrightError(f"{path} is a broken profile: {words}") from error


def from_json(document: dict[str, Any]) -> Profile:
    """What `to_json` gave; ValueError, KeyError or TypeError where it cannot be that."""
    ceilings = document["ceilings"]
    wall = Wall(
        _number(document["wall_seconds"]),
        {part: _number(document["wall_parts"][part]) for part in PARTS},
    )
    return Profile(
        network=_text(document["network"]),
        data=_text(document["data"]),
        device=_text(document["device"]),
        device_name=_text(document["device_name"]),
        rung=_text(document["rung"]),
        idea=_text(document["idea"]),
        memory=_text(document["memory"]),
        source=_text(document["source"]),
        images=_whole(document["images"]),
        batch=_whole(document["batch"]),
        dropped=_whole(document["dropped"]),
        layers=tuple(
            replace(
                Layer(_text(x["name"]), _text(x["kind"]), *(_whole(x[name]) for name in AMOUNTS)),
                inside_flops=_maybe(x.get("inside_flops"), _whole),
            )
            for x in document["layers"]
        ),
        rows=tuple(map(_from_row, document["detail"])),
        wall=wall,
        timed=tuple(map(_number, document["timed_seconds"])),
        ceilings=None if ceilings is None else _ceilings(ceilings),
        accuracy=_maybe(document["accuracy"], _part),
        stopped=_maybe(document["stopped"], _text),
        notices=_texts(document["notices"]),
        environment=dict(document["environment"]),
        skips_taps=document.get("skips_taps", False) is True,
    )


def _row(row: Row) -> dict[str, Any]:
    return {
        "kind": row.kind,
        "name": row.name,
        "layers": list(row.layers),
        "calls": row.calls,
        "seconds": row.seconds,
        "average": row.average,
        "minimum": row.minimum,
        "maximum": row.maximum,
        "bytes": row.bytes,
        "smallest": row.smallest,
        "largest": row.largest,
        "count": row.count,
        "flop": row.flops,
        "least_bytes": row.least_bytes,
        "shapes": [{"grid": list(grid), "block": list(block)} for grid, block in row.shapes],
        "more_shapes": row.more_shapes,
        "faulted": row.faulted,
        "loads": row.loads,
        "index_operations": row.index_operations,
    }


def _from_row(given: dict[str, Any]) -> Row:
    if given["kind"] not in KINDS or _whole(given["calls"]) < 1:
        raise ValueError(f"no row can be {given['kind']!r:.40} of {given['calls']!r:.40} calls")
    return Row(
        given["kind"],
        _text(given["name"]),
        _texts(given["layers"]),
        given["calls"],
        _number(given["seconds"]),
        _number(given["minimum"]),
        _number(given["maximum"]),
        _whole(given["bytes"]),
        _whole(given["smallest"]),
        _whole(given["largest"]),
        _whole(given["count"]),
        _maybe(given["flop"], _whole),
        _maybe(given["least_bytes"], _whole),
        tuple((_size(shape["grid"]), _size(shape["block"])) for shape in given["shapes"]),
        _whole(given["more_shapes"]),
        _number(given["faulted"]),
        _number(given.get("loads", 0.0), MOST_OPERATIONS),
        _number(given.get("index_operations", 0.0), MOST_OPERATIONS),
    )


def _ceilings(given: dict[str, Any]) -> Ceilings:
    return Ceilings(
        _text(given["device"]),
        _maybe(given["flops"], _rate),
        _maybe(given["bytes"], _rate),
        _whole(given["processors"]),
        _text(given["date"]),
        _text(given["precision"]),
        _maybe(given.get("loads"), _rate),
        _maybe(given.get("index_operations"), _rate),
    )


def _size(given: Any) -> tuple[int, int, int]:
    x, y, z = map(_whole, given)
    return x, y, z


def _maybe(given: Any, check: Any) -> Any:
    return None if given is None else check(given)


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise ValueError(f"{given!r:.40} is not a text")
    given.encode()  # half a character is none, and no file can have it
    return given


def _texts(given: Any) -> tuple[str, ...]:
    if not isinstance(given, list):
        raise ValueError(f"{given!r:.40} is not a list")
    return tuple(map(_text, given))


def _number(given: Any, most: float = LONGEST_SECONDS) -> float:
    """From 0 on, by default seconds."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= most:
        shown = f"{given!r:.40}" if not isinstance(given, int) or abs(given) < 2**64 else "that"
        raise ValueError(f"{shown} is not a number from 0 to {most:g}")
    return float(given)


def _rate(given: Any) -> float:
    return _number(given, FASTEST)


def _part(given: Any) -> float:
    return _number(given, 1)


def _whole(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < 2**63:
        shown = f"{given!r:.40}" if not isinstance(given, int) or abs(given) < 2**64 else "that"
        raise ValueError(f"{shown} is not a whole number from 0 on")
    return given
