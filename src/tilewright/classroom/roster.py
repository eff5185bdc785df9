"""Who is in a class: a table of logins and names."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from tilewright.classroom.fields import file_text, one_line
from tilewright.errors import TilewrightError

LOGIN = re.compile(r"[a-z0-9][a-z0-9._@+-]{0,63}")
LONGEST_NAME = 100
MOST_PEOPLE = 10_000


def read_roster(folder: Path, name: str | None, mistakes: list[str]) -> dict[str, str]:
    """Names by logins. Without a name the file may be missing."""
    path = folder / (name or "roster.csv")
    if name is None and not path.exists():
        return {}
    try:
        rows = list(csv.reader(file_text(path).splitlines(), strict=True))
    except csv.Error as error:
        mistakes.append(f"{path.name}: {error}")
        return {}
    except TilewrightError as error:
        mistakes.append(str(error))
        return {}
    if not rows or [cell.strip() for cell in rows[0]] != ["login", "name"]:
        mistakes.append(f"{path.name}: line 1: the columns are login,name")
        return {}
    people: dict[str, str] = {}
    for line, row in enumerate(rows[1:], 2):
        if not any(cell.strip() for cell in row):
            continue
        problem = _wrong_row(row, people)
        if problem is None:
            people[row[0].strip().casefold()] = row[1].strip()
        else:
            mistakes.append(f"{path.name}: line {line}: {problem}")
    return people


def _wrong_row(row: list[str], people: dict[str, str]) -> str | None:
    if len(row) != 2:
        return f"a login and a name are meant, and there are {len(row)} cells"
    login, name = row[0].strip().casefold(), row[1].strip()
    if not LOGIN.fullmatch(login):
        return no_login(login)
    if login in people:
        return f"{login} is there twice"
    if len(people) >= MOST_PEOPLE:
        return f"a class has at most {MOST_PEOPLE:,} people"
    problem = one_line(name, LONGEST_NAME)
    return f"the name of {login}: {problem}" if problem else None


def no_login(login: str) -> str:
    """What to say of a login that cannot be one."""
    return f"{login!r:.80} is no login: letters, digits and . _ @ + - are meant, 64 at most"
