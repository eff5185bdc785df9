"""Take a class's results away: a table a task, Gradescope's file of a submission, or everything."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.cli import options, output
from tilewright.errors import TilewrightError, unknown

if TYPE_CHECKING:
    from tilewright.classroom.course import Course, Task

OUTPUTS = ("csv", "gradescope", "zip")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the class")
    parser.add_argument("--task", metavar="NAME", help="of which (default: the only one)")
    parser.add_argument("--csv", metavar="FILE", help="write a row a student")
    parser.add_argument("--gradescope", metavar="FILE", help="write results.json of a submission")
    parser.add_argument(
        "--number", type=options.positive, metavar="N", help="the submission for --gradescope"
    )
    parser.add_argument(
        "--zip", metavar="FILE", help="write the whole class: files, verdicts, tables"
    )


def main(arguments: argparse.Namespace) -> int:
    from tilewright.classroom.course import read_course
    from tilewright.classroom.export import gradescope, to_csv, to_zip
    from tilewright.classroom.store import store_of
    from tilewright.terminal import printable
    from tilewright.views import console

    chosen = [name for name in OUTPUTS if getattr(arguments, name) is not None]
    if not chosen:
        raise TilewrightError("name what to write: --csv, --gradescope or --zip FILE")
    options.check_outputs(arguments, OUTPUTS, may_be_stdout=())
    course = read_course(arguments.folder)
    store = store_of(course)
    course = store.with_gone(course)
    if arguments.csv is not None:
        output.write((arguments.csv, to_csv(store, _task(course, arguments.task))))
    if arguments.gradescope is not None:
        if arguments.number is None:
            raise TilewrightError("--gradescope is of one submission: name it with --number N")
        found = store.submission(arguments.number)
        if found is None or found.task not in course.all_tasks:
            raise TilewrightError(f"there is no submission {arguments.number}")
        made = gradescope(store, course.all_tasks[found.task], found)
        output.write((arguments.gradescope, made))
    if arguments.zip is not None:
        with console.progress_line() as tell:
            progress = partial(tell, "submissions")
            to_zip(course, store, Path(arguments.zip), progress)
    for name in chosen:
        print(f"wrote {printable(getattr(arguments, name))}")
    return 0


def _task(course: Course, name: str | None) -> Task:
    tasks = course.all_tasks
    if name is None and len(tasks) == 1:
        return next(iter(tasks.values()))
    if name is None:
        raise TilewrightError(f"name one with --task: {', '.join(tasks)}")
    if name not in tasks:
        raise unknown("task", name, tasks)
    return tasks[name]
