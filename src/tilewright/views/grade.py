"""A class as a table, as CSV, as one page, and one submission as Gradescope reads it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from html import escape

from rich.console import RenderableType

from tilewright.measure.samples import Ratio, ratio
from tilewright.results.grade import Graded, GradeRecord
from tilewright.terminal import printable
from tilewright.views import units
from tilewright.views.table import Column, Table


def report(record: GradeRecord) -> Iterator[RenderableType]:
    """What the command prints, now or of a record that was kept."""
    yield (
        f"{record.headline}: {record.network} on {record.device} ({record.device_name}), "
        f"seed {record.seed}\n"
    )
    yield table(record)


def table(record: GradeRecord) -> Table:
    made = Table(
        "Class",
        (
            *(Column("rank", "number"), Column("student"), Column("verdict")),
            *(Column("time", "number"), Column(f"times {record.compared_with}", "number")),
            Column("points", "number"),
        ),
    )
    for each in record.submissions:
        made.add_row(
            "" if each.rank is None else units.count(each.rank),
            printable(each.student),
            _verdict(each),
            _time(each),
            _times(each),
            units.count(each.points),
        )
    return made


def _verdict(each: Graded) -> str:
    first = each.judged.reason.strip().splitlines()[:1]
    return each.judged.outcome + "".join(f": {printable(line)}" for line in first)


def _time(each: Graded) -> str:
    total = each.judged.total
    return "" if total is None else units.seconds(total.median)


def faster(each: Graded) -> Ratio | None:
    """How many times as fast as the rung that all are compared with."""
    mine, baseline = each.judged.total, each.judged.baseline_total
    return None if mine is None or baseline is None else ratio(baseline, mine)


def _times(each: Graded) -> str:
    found = faster(each)
    if found is None:
        return ""
    sure = found.interval
    text = f"{found.value:.2f}x" + (f" ({sure.low:.2f} to {sure.high:.2f})" if sure.known else "")
    return units.Quantity(text, found.value, "x")


COLUMNS = (
    "rank", "student", "file", "outcome", "points", "seconds", "faster", "reason", "sha256",
)  # fmt: skip


def to_csv(record: GradeRecord) -> str:
    """A row a student. A cell that a spreadsheet would compute is a text there, too."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for each in record.submissions:
        total, compared = each.judged.total, faster(each)
        row = (
            each.rank, each.student, each.file, each.judged.outcome, each.points,
            None if total is None else total.median, None if compared is None else compared.value,
            each.judged.reason, each.sha256,
        )  # fmt: skip
        writer.writerow(["" if cell is None else harmless(cell) for cell in row])
    return out.getvalue()


def harmless(cell: object) -> object:
    """A cell that a spreadsheet does not take for a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@")) else cell


def to_gradescope(record: GradeRecord, most_points: int) -> str:
    """The `results.json` of an autograder, of the one submission that there is."""
    (each,) = record.submissions
    right = each.judged.outcome == "right"
    leaderboard: list[dict[str, str | float]] = [{"name": "Points", "value": each.points}]
    if each.judged.total is not None:
        milliseconds = round(1e3 * each.judged.total.median, 6)
        leaderboard.append({"name": "Time (ms)", "value": milliseconds, "order": "asc"})
    passed = f"right, {_time(each)}, {_times(each)} {record.compared_with}"
    document = {
        "score": each.points,
        "output": f"{record.network} on {record.device_name}, seed {record.seed}",
        "output_format": "text",
        "tests": [
            {
                "name": printable(each.file),
                "score": each.points,
                "max_score": most_points,
                "status": "passed" if right else "failed",
                "output": passed if right else f"{each.judged.outcome}\n{each.judged.reason}",
                "output_format": "text",
            }
        ],
        "leaderboard": leaderboard,
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .4rem .6rem; text-align: left; vertical-align: top; }
tr + tr td, thead + tbody td { border-top: 1px solid color-mix(in srgb, currentColor 20%, transparent); }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.bar { height: .5rem; border-radius: .25rem; background: #2a78c2; min-width: 2px; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .3rem 0; font-size: .85rem; }
.scroll { overflow-x: auto; }
@media print { details { display: block; } }
"""  # noqa: E501


def to_html(record: GradeRecord) -> str:
    """One page that needs nothing else: no script, no request."""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(record.folder)}</title><style>{STYLE}</style></head><body>",
            *_page(record),
            "</body></html>",
            "",
        ]
    )


def _page(record: GradeRecord) -> Iterator[str]:
    made = record.environment
    yield f"<h1>{escape(record.folder)}</h1>"
    yield (
        f"<p>{escape(record.headline)}. {escape(record.network)}, {record.images:,} images in "
        f"batches of {record.batch:,}, on {escape(record.device_name)}; seed {record.seed}; "
        f"compared with {escape(record.compared_with)}. Points of a right kernel: "
        f"<code>{escape(record.points_formula)}</code>.</p>"
    )
    yield '<div class="scroll"><table><thead><tr>'
    for name in ("rank", "student", "verdict", "time", f"times {record.compared_with}", "points"):
        number = ' class="number"' if name not in ("student", "verdict") else ""
        yield f'<th scope="col"{number}>{escape(name)}</th>'
    yield "</tr></thead><tbody>"
    totals = [each.judged.total.median for each in record.submissions if each.judged.total]
    for each in record.submissions:
        yield from _row(each, min(totals, default=0.0))
    yield "</tbody></table></div>"
    yield (
        f"<p>Tilewright {escape(made.tilewright)}, {escape(made.date)}, {escape(made.cpu)}. "
        f"Made by <code>{escape(' '.join(made.command))}</code>.</p>"
    )


def _row(each: Graded, best: float) -> Iterator[str]:
    total, reason = each.judged.total, each.judged.reason.strip()
    # The fastest has the longest bar: it shows speed.
    share = 100 * best / total.median if total else 0
    bar = f'<div class="bar" style="width:{share:.1f}%"></div>' if total else ""
    more = f"<details><summary>why</summary><pre>{escape(reason)}</pre></details>" if reason else ""
    yield (
        f'<tr><td class="number">{"" if each.rank is None else each.rank}</td>'
        f"<td>{escape(each.student)}<br><small>{escape(each.file)}</small></td>"
        f"<td>{escape(each.judged.outcome)}{more}</td>"
        f'<td class="number">{escape(_time(each))}{bar}</td>'
        f'<td class="number">{escape(_times(each))}</td>'
        f'<td class="number">{units.count(each.points)}</td></tr>'
    )
