"""Correctness: right answers at the course's sizes, what is taken for what, and the worst of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.results.ladder import LadderRecord
from tilewright.results.page import AnswersRecord, Mistake
from tilewright.views import units
from tilewright.views.report import charts
from tilewright.views.report.blocks import (
    Block,
    Cell,
    Chart,
    Number,
    Paragraph,
    Picture,
    Pictures,
    Section,
    Spec,
    Table,
)
from tilewright.views.report.ladder import proof
from tilewright.views.report.material import Material, subject

READING = (
    "A rung is right if every output is within the rounding error that its arithmetic allows: that "
    "is the proof. How often the network is right is another question, and the same for all rungs"
)
MATRIX = "; each row of the matrix is a class, each column what its images were taken for."
UNLABELLED = "; these images have no labels to tell."
LARGEST_MATRIX = 40


def section(material: Material) -> Section:
    blocks: list[Block] = []
    for ladder in material.ladders:
        if found := shares(ladder):
            blocks.append(found)
    for answers in material.of(AnswersRecord):
        blocks += _answers(answers)
    words = material.words_for("correctness")
    known = any(row.correctness for ladder in material.ladders for row in ladder.rows)
    how = MATRIX if material.of(AnswersRecord) else "." if known or not blocks else UNLABELLED
    return Section("correctness", "Correctness", READING + how, (*blocks, words))


def shares(ladder: LadderRecord) -> Table | None:
    """Right answers and proofs of every rung, at the course's sizes."""
    rows = [row for row in ladder.rows if row.correctness or row.verification]
    sizes = sorted({each.images for row in rows for each in row.correctness})
    if not rows:
        return None
    answers = "share of right answers among the first images, and " if sizes else ""
    return Table(
        f"{subject(ladder)}: {answers}the proof",
        ("rung", *(f">{units.count(size)} images" for size in sizes), "proof"),
        [
            (
                row.rung,
                *(_share({e.images: e.share for e in row.correctness}.get(s)) for s in sizes),
                proof(row.verification),
            )
            for row in rows
        ],
    )


def _share(value: float | None) -> Cell:
    return "-" if value is None else Number(f"{value:.4f}", value)


def _answers(answers: AnswersRecord) -> Iterator[Block]:
    yield Table(
        f"{subject(answers)}: right answers of {answers.rung} on {answers.data}",
        (">images", ">right", ">share"),
        [
            (
                Number(units.count(each.images), each.images),
                Number(units.count(round(each.share * each.images)), each.share * each.images),
                _share(each.share),
            )
            for each in answers.correctness
        ],
    )
    if len(answers.classes) <= LARGEST_MATRIX:
        yield matrix(answers)
    else:
        yield Paragraph(f"{len(answers.classes)} classes are too many for a matrix on a page.")
    if answers.mistakes:
        yield Pictures(
            "The most confidently wrong: what it is, what it was taken for, and how surely",
            [
                Picture(
                    each.png,
                    f"image {each.image}: {_name(answers, each.label)}, taken for "
                    f"{_name(answers, each.predicted)}{_likely(each)}",
                )
                for each in answers.mistakes
            ],
        )


def _name(answers: AnswersRecord, number: int) -> str:
    return answers.classes[number] if number < len(answers.classes) else str(number)


def matrix(answers: AnswersRecord) -> Chart:
    height = max(160, 26 * len(answers.classes))
    rows: list[Sequence[Cell]] = [
        (name, *(Number(units.count(count), count) for count in counts))
        for name, counts in zip(answers.classes, answers.confusion, strict=True)
    ]
    columns = ("class", *(f">{name}" for name in answers.classes))
    return Chart(
        f"{subject(answers)}: what was taken for what",
        _most_confused(answers),
        {"matrix": _spec(answers, height)},
        Table("Images of each class by what they were taken for", columns, rows),
        height,
    )


def _most_confused(answers: AnswersRecord) -> str:
    pairs = [
        (count, row, column)
        for row, counts in enumerate(answers.confusion)
        for column, count in enumerate(counts)
        if row != column and count
    ]
    if not pairs:
        return "No image was taken for another class."
    count, row, column = max(pairs)
    return (
        f"Most often confused: {_name(answers, row)} taken for {_name(answers, column)}, "
        f"{units.count(count)} times."
    )


def _spec(answers: AnswersRecord, height: int) -> Spec:
    import altair as alt

    rows = [
        {
            "class": _name(answers, row), "taken": _name(answers, column), "images": count,
            "share": count / (sum(counts) or 1),
        }
        for row, counts in enumerate(answers.confusion)
        for column, count in enumerate(counts)
    ]  # fmt: skip
    base = alt.Chart(charts.data(rows)).encode(
        x=alt.X(
            "taken:N", sort=list(answers.classes), title="taken for", axis=alt.Axis(orient="top")
        ),
        y=alt.Y("class:N", sort=list(answers.classes), title="is"),
        tooltip=[
            *charts.told_of(("class", "taken")), alt.Tooltip("images:Q"),
            alt.Tooltip("share:Q", format=".1%"),
        ],
    )  # fmt: skip
    cells = base.mark_rect().encode(
        color=alt.Color("share:Q", scale=alt.Scale(domain=[0, 1]), legend=None)
    )
    read = f"datum.share > 0.75 ? {charts.BRIGHT} : datum.images ? {charts.INK} : 'transparent'"
    counts = base.mark_text(fontSize=11).encode(
        text=alt.Text("images:Q"), color=alt.ColorValue(alt.ExprRef(read))
    )
    return charts.spec(cells + counts, height, rows)


def _likely(mistake: Mistake) -> str:
    return "" if mistake.probability is None else f" ({units.share(mistake.probability)})"
