"""Read a class's files and say all that is wrong with them, and what this machine can judge."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.cli import options, output
from tilewright.errors import TilewrightError

if TYPE_CHECKING:
    from tilewright.classroom.course import Task


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="with class.toml in it")
    options.add_format(parser)


def main(arguments: argparse.Namespace) -> int:
    from tilewright.classroom.course import read_course, said
    from tilewright.views import units
    from tilewright.views.table import table

    course = read_course(arguments.folder)
    students = len(course.people.keys() - course.teachers)
    words = units.plural(students, "student") + (", others by invitation" if course.invite else "")
    rows = table("", "task", "network", "device", "opens", "closes", "points", "here")
    for task in course.tasks.values():
        rows.add_row(
            task.name,
            Path(task.network).name,
            str(task.device),
            said(task.opens) if task.opens else "",
            said(task.closes) if task.closes else "",
            task.points,
            _here(task),
        )
    output.tables([f"{course.title}: {words}", rows], arguments.format)
    return 0


def _here(task: Task) -> str:
    """Whether it can be judged here."""
    from tilewright.classroom.judging import KernelJudge

    try:
        KernelJudge().prepare(task)
    except TilewrightError as error:
        return f"cannot be judged: {error}"
    return "can be judged"
