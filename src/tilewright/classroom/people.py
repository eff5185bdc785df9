"""Who is in the class, and how they show who they are.

Codes, tokens and sessions are drawn here, shown once and kept as their SHA-256: whoever reads the
file cannot log in by it. They are of so many random bits that a slow hash would add nothing.
"""

from __future__ import annotations

import datetime
import hashlib
import secrets
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.classroom.fields import one_line
from tilewright.classroom.roster import LOGIN, LONGEST_NAME, no_login
from tilewright.classroom.tables import Tables, changed, kept
from tilewright.errors import TilewrightError

SESSION = datetime.timedelta(days=14)
MOST_TOKENS = 20  # of a person: who makes more has lost the older ones
LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"  # of codes: no two look alike
PERSON = "people.login, people.name, people.pseudonym, people.teacher"
FIRST = (
    "amber", "azure", "brave", "brisk", "calm", "clear", "coral", "crisp", "deep", "eager", "early",
    "fair", "fleet", "fresh", "gentle", "golden", "green", "happy", "ivory", "jolly", "keen",
    "kind", "light", "lively", "lucky", "merry", "mild", "misty", "noble", "olive", "proud",
    "quick", "quiet", "rapid", "rosy", "ruby", "sandy", "sharp", "silver", "snowy", "steady",
    "sunny", "swift", "tidy", "violet", "warm", "wise", "young",
)  # fmt: skip
SECOND = (
    "badger", "bear", "beaver", "bison", "crane", "crow", "deer", "dolphin", "dove", "eagle",
    "falcon", "ferret", "finch", "fox", "gecko", "goose", "hare", "hawk", "heron", "ibex", "jay",
    "koala", "lark", "lemur", "lion", "lynx", "magpie", "marten", "mole", "moose", "newt", "orca",
    "osprey", "otter", "owl", "panda", "puffin", "raven", "robin", "seal", "sparrow", "stork",
    "swan", "tiger", "toad", "trout", "whale", "wolf",
)  # fmt: skip


@dataclass(frozen=True)
class Person:
    login: str
    name: str
    pseudonym: str
    teacher: bool = False


class People(Tables):
    """The part of the store that knows people."""

    def enrol(self, login: str, name: str, teacher: bool = False) -> None:
        """Take somebody in, or take over a new name; what they have done stays theirs."""
        login = _checked(login, name)
        with self.database.writing() as database:
            _enrol(database, login, name, teacher)

    def enrol_all(self, people: Mapping[str, str], teachers: frozenset[str]) -> None:
        """The class as its files say it. Who is no teacher any more is a student; who is no longer
        named, and did not come by an invitation, cannot log in, and what they handed in stays."""
        with self.database.writing() as database:
            database.execute("UPDATE people SET teacher = 0")
            for login, name in people.items():
                _enrol(database, login, name, login in teachers)
            here = database.execute("SELECT login FROM people WHERE NOT invited").fetchall()
            for (login,) in here:
                if login not in people:
                    database.execute("UPDATE people SET code = NULL WHERE login = ?", (login,))
                    _revoke(database, login)

    def register(self, login: str, name: str) -> str:
        """Take in somebody new, by an invitation; their login code. A login that is taken stays
        whose it is."""
        login, drawn = _checked(login, name), _code()
        with self.database.writing() as database:
            if database.execute("SELECT 1 FROM people WHERE login = ?", (login,)).fetchone():
                raise TilewrightError(f"{login!r:.80} is taken")
            _enrol(database, login, name, False)
            statement = "UPDATE people SET invited = 1, code = ? WHERE login = ?"
            database.execute(statement, (_hash(drawn), login))
        return drawn

    def people(self) -> list[Person]:
        rows = self.database.rows(f"SELECT {PERSON} FROM people ORDER BY login")
        return [_person(row) for row in rows]

    def person(self, login: str) -> Person | None:
        query = f"SELECT {PERSON} FROM people WHERE login = ?"
        return _only(self.database.rows(query, (login.casefold(),)))

    def new_code(self, login: str) -> str:
        """A code to log in with; one that was there before is void."""
        drawn = _code()
        with self.database.writing() as database:
            values = (_hash(drawn), login.casefold())
            if not changed(database, "UPDATE people SET code = ? WHERE login = ?", values):
                raise TilewrightError(f"there is no {login!r:.80} in the class")
        return drawn

    def without_code(self) -> list[str]:
        """Logins that have no code yet."""
        query = "SELECT login FROM people WHERE code IS NULL ORDER BY login"
        return [login for (login,) in self.database.rows(query)]

    def person_of_code(self, login: str, code: str) -> Person | None:
        query = f"SELECT {PERSON} FROM people WHERE login = ? AND code = ?"
        values = (login.strip().casefold(), _hash(code.strip().casefold()))
        return _only(self.database.rows(query, values))

    def new_token(self, login: str, label: str) -> str:
        """For programs, until it is revoked."""
        drawn = secrets.token_urlsafe(32)
        with self.database.writing() as database:
            database.execute(
                "INSERT INTO tokens (secret, login, label) VALUES (?, ?, ?)",
                (_hash(drawn), login.casefold(), label[:LONGEST_NAME]),
            )
            database.execute(
                "DELETE FROM tokens WHERE login = ? AND rowid NOT IN (SELECT rowid FROM tokens "
                "WHERE login = ? ORDER BY rowid DESC LIMIT ?)",
                (login.casefold(), login.casefold(), MOST_TOKENS),
            )
        return drawn

    def person_of_token(self, token: str) -> Person | None:
        query = f"SELECT {PERSON} FROM tokens JOIN people USING (login) WHERE secret = ?"
        return _only(self.database.rows(query, (_hash(token),)))

    def revoke(self, login: str) -> None:
        """All tokens and sessions of a person: whatever was lost is of no use."""
        with self.database.writing() as database:
            _revoke(database, login.casefold())

    def new_session(self, login: str, now: datetime.datetime) -> str:
        drawn = secrets.token_urlsafe(32)
        with self.database.writing() as database:
            database.execute("DELETE FROM sessions WHERE until < ?", (kept(now),))
            values = (_hash(drawn), login.casefold(), kept(now + SESSION))
            database.execute("INSERT INTO sessions VALUES (?, ?, ?)", values)
        return drawn

    def person_of_session(self, secret: str, now: datetime.datetime) -> Person | None:
        query = (
            f"SELECT {PERSON} FROM sessions JOIN people USING (login) "
            "WHERE secret = ? AND until >= ?"
        )
        return _only(self.database.rows(query, (_hash(secret), kept(now))))

    def end_session(self, secret: str) -> None:
        with self.database.writing() as database:
            database.execute("DELETE FROM sessions WHERE secret = ?", (_hash(secret),))


def _checked(login: str, name: str) -> str:
    """The login as it is kept."""
    login = login.casefold()
    if not LOGIN.fullmatch(login):
        raise TilewrightError(no_login(login))
    if problem := one_line(name, LONGEST_NAME):
        raise TilewrightError(f"the name of {login}: {problem}")
    return login


def _code() -> str:
    return "-".join("".join(secrets.choice(LETTERS) for _ in range(5)) for _ in range(4))


def _revoke(database: sqlite3.Connection, login: str) -> None:
    for table in ("tokens", "sessions"):
        database.execute(f"DELETE FROM {table} WHERE login = ?", (login,))


def _enrol(database: sqlite3.Connection, login: str, name: str, teacher: bool) -> None:
    values = (name, int(teacher), login)
    if changed(database, "UPDATE people SET name = ?, teacher = ? WHERE login = ?", values):
        return
    taken = {row[0] for row in database.execute("SELECT pseudonym FROM people")}
    database.execute(
        "INSERT INTO people (login, name, pseudonym, teacher) VALUES (?, ?, ?, ?)",
        (login, name, _pseudonym(taken), int(teacher)),
    )


def _pseudonym(taken: set[str]) -> str:
    """That nobody has, and that says nothing of whose it is."""
    drawn = ""
    while not drawn or drawn in taken:
        drawn = f"{secrets.choice(FIRST)} {secrets.choice(SECOND)}"
        if len(taken) > len(FIRST) * len(SECOND) // 2:
            drawn += f" {secrets.randbelow(10**6)}"
    return drawn


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def _person(row: tuple[Any, ...]) -> Person:
    login, name, pseudonym, teacher = row
    return Person(login, name, pseudonym, bool(teacher))


def _only(rows: list[tuple[Any, ...]]) -> Person | None:
    return _person(rows[0]) if rows else None
