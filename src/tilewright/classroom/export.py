"""A class to take away: a CSV a task, Gradescope's `results.json` a submission, all as a zip."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from tilewright import environment
from tilewright.classroom.course import Course, Task
from tilewright.classroom.ranking import Standing, others_than, points, standings
from tilewright.classroom.store import Store
from tilewright.classroom.submissions import Submitted
from tilewright.files import atomic_write
from tilewright.results.grade import Graded, GradeRecord, Judged
from tilewright.results.record import Environment
from tilewright.views.grade import harmless, to_gradescope

COLUMNS = (
    "login", "name", "rank", "points", "most_points", "outcome", "seconds", "times",
    "late_percent", "submissions", "number", "handed_in", "file", "sha256", "reason",
)  # fmt: skip


def to_csv(store: Store, task: Task) -> str:
    """A row a student, whether they handed in anything or not."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for each in standings(store, task):
        writer.writerow(["" if cell is None else harmless(cell) for cell in _cells(each, task)])
    return out.getvalue()


def _cells(each: Standing, task: Task) -> tuple[str | int | float | None, ...]:
    """Of the fastest that counts; else of the last, which says what is wrong."""
    shown = each.best or next(reversed(each.handed_in), None)
    judged = shown.judged if shown else None
    total = judged.total if judged and each.best else None
    baseline = judged.baseline_total if judged and each.best else None
    outcome = judged.outcome if judged else "not judged yet" if shown else "nothing handed in"
    return (
        each.person.login, each.person.name, each.rank, each.points, task.most_points, outcome,
        total.median if total else None, baseline.median / total.median if baseline and total
        else None, each.late_percent, len(each.handed_in), shown.number if shown else None,
        shown.handed_in.isoformat() if shown else None, shown.file if shown else None,
        shown.sha256 if shown else None, judged.reason if judged else None,
    )  # fmt: skip


def gradescope(store: Store, task: Task, each: Submitted) -> str:
    """The `results.json` of one submission, with its own points."""
    return _gradescope(standings(store, task), task, each, environment.fingerprint())


def _gradescope(class_of: list[Standing], task: Task, each: Submitted, where: Environment) -> str:
    others = others_than(each.login, class_of)
    record = GradeRecord(
        network=Path(task.network).stem, device=str(task.device), device_name=str(task.device),
        environment=where, folder=task.name, seed=task.seed, images=task.images, batch=task.batch,
        compared_with=task.against, points_formula=task.points, limit_seconds=task.limit,
        submissions=(
            Graded(
                student=each.login, file=each.file, sha256=each.sha256,
                judged=_shown(each), rank=None, points=points(each, others, task),
            ),
        ),
    )  # fmt: skip
    return to_gradescope(record, task.most_points)


def _shown(each: Submitted) -> Judged:
    if each.disqualified is not None:
        return Judged(outcome="refused", reason=f"disqualified: {each.disqualified}")
    return each.judged or Judged(outcome="nothing to judge", reason="it is not judged yet")


def to_zip(
    course: Course,
    store: Store,
    path: Path,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> None:
    """The whole class: its files, tables, and every submission with what came of it."""
    of, done = sum(len(store.of_task(name)) for name in course.all_tasks), 0
    with (
        atomic_write(path, mode=0o600) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made,
    ):
        for name, content in entries(course, store):
            made.writestr(name, content)
            done += name.endswith("/results.json")
            progress(done, of)


def entries(course: Course, store: Store) -> Iterator[tuple[str, bytes]]:
    """Names and contents of all that goes into the zip, one after the other."""
    for path in sorted((*course.folder.glob("*.toml"), *course.folder.glob("*.csv"))):
        yield path.name, path.read_bytes()
    for path in sorted((course.folder / "tasks").iterdir()):
        if path.is_file():
            yield f"tasks/{path.name}", path.read_bytes()
    where = environment.fingerprint()
    for task in course.all_tasks.values():
        yield f"{task.name}.csv", to_csv(store, task).encode()
        class_of = standings(store, task)
        for each in store.of_task(task.name):
            folder = f"submissions/{task.name}/{each.login}/{each.number}"
            for name, content in store.files(each.number).items():
                yield f"{folder}/files/{name}", content
            yield f"{folder}/results.json", _gradescope(class_of, task, each, where).encode()
            if each.judged is not None:
                yield f"{folder}/judged.json", msgspec.json.format(msgspec.json.encode(each.judged))
