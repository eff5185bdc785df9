"""Draw codes for students to log in with: for all who have none, or anew for those named.

A code is shown once; what is kept is its hash. Who lost theirs gets a new one.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tilewright.cli import options, output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the class")
    parser.add_argument(
        "logins",
        nargs="*",
        metavar="LOGIN",
        help="whose code is drawn anew (default: who has none)",
    )
    options.add_format(parser)


def main(arguments: argparse.Namespace) -> int:
    from tilewright.classroom.course import read_course
    from tilewright.classroom.store import store_of
    from tilewright.errors import TilewrightError
    from tilewright.terminal import printable
    from tilewright.views.table import table

    store = store_of(read_course(arguments.folder))
    people = {person.login: person for person in store.people()}
    logins = [login.casefold() for login in arguments.logins] or store.without_code()
    for login in logins:
        if login not in people:
            raise TilewrightError(f"there is no {login!r:.80} in the class")
    if not logins:
        print("everybody has a code; name a login to draw a new one")
        return 0
    rows = table("", "login", "name", "code")
    for login in logins:
        rows.add_row(login, printable(people[login].name), store.new_code(login))
    output.tables([rows], arguments.format)
    return 0
