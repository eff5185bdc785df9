"""A class as its folder says it: `class.toml`, `roster.csv` and a file a task in `tasks/`.

All of it is read and checked at once: what is wrong is told with file and key before anybody can
hand anything in.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tilewright.classroom.fields import LONGEST_TEXT, Fields, Mistakes
from tilewright.classroom.roster import LOGIN, no_login, read_roster
from tilewright.errors import TilewrightError
from tilewright.judge.grade import NAMES as IN_FORMULAS
from tilewright.rungs.own.expression import Expression, Place
from tilewright.runtime.device import GPU_KINDS, OPENCL, Device

NAMES = ("names", "pseudonyms", "own")  # whom a leaderboard names: all, all in disguise, oneself
TASK = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
LEAST_INVITE = 8  # characters: it can be tried by whoever knows the address
DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Late:
    """So many percent less for each day that has begun, and nothing is taken after so many days."""

    percent_a_day: int
    days: int


@dataclass(frozen=True)
class Task:
    """What is asked for, and how it is judged; `limit` is in seconds, of the proof.

    `network` and `data` are names, or paths that lead there from anywhere. `marks` are rungs whose
    times stand in the leaderboard. `start` is a file that students may begin with. One that is not
    `offered` any more has no file in the class, and takes nothing.
    """

    name: str
    title: str
    text: str = ""
    network: str = "ece408"
    data: str | None = None
    device: Device = OPENCL
    images: int = 1000
    batch: int = 100
    against: str = "direct"
    seed: int = 1
    limit: int = 120
    repeats: int | None = None
    points: str = "100"
    most_points: int = 100
    opens: datetime.datetime | None = None
    closes: datetime.datetime | None = None
    late: Late | None = None
    marks: tuple[str, ...] = ()
    start: Path | None = None
    offered: bool = True

    @property
    def network_name(self) -> str:
        """Without the way to its file, which is the server's."""
        return Path(self.network).name

    @property
    def formula(self) -> Expression:
        made = Expression(self.points, Place(f"tasks/{self.name}.toml", None, "points"))
        made.check_names(IN_FORMULAS)
        return made

    def late_percent(self, moment: datetime.datetime) -> int:
        """What is taken off the points of what came in at that moment: 0 in time, at most 100."""
        if self.closes is None or moment <= self.closes:
            return 0
        days = -((self.closes - moment) // DAY)
        if self.late is None or days > self.late.days:
            return 100
        return min(100, days * self.late.percent_a_day)

    def closed(self, moment: datetime.datetime) -> str | None:
        """Why nothing is taken at that moment, if so."""
        if not self.offered:
            return f"{self.title}: task no longer offered"
        if self.opens is not None and moment < self.opens:
            return f"{self.title} opens on {said(self.opens)}"
        if self.closes is None:
            return None
        last = self.closes + (DAY * self.late.days if self.late else 0 * DAY)
        return f"{self.title} closed on {said(last)}" if moment > last else None


@dataclass(frozen=True)
class Course:
    """A class. `people` are the roster's, by login; `invite` is the code that lets others in."""

    folder: Path
    title: str
    names: str
    teachers: frozenset[str]
    people: dict[str, str]
    invite: str | None
    tasks: dict[str, Task]
    gone: dict[str, Task] = field(default_factory=dict)

    @property
    def all_tasks(self) -> dict[str, Task]:
        """Those that are offered, then those that were."""
        return {**self.tasks, **self.gone}

    @property
    def state(self) -> Path:
        """Where the server keeps what is not the teacher's to write."""
        return self.folder / "state"


def said(moment: datetime.datetime) -> str:
    return f"{moment.astimezone(datetime.UTC):%Y-%m-%d %H:%M} UTC"


def read_course(folder: Path) -> Course:
    """The class in a folder; an error with all that is wrong in all of its files."""
    if not (folder / "class.toml").exists():
        raise TilewrightError(
            f"{folder} is no class: it has no class.toml (`tilewright class new {folder}` writes "
            "one to start from)"
        )
    mistakes: list[str] = []
    fields = Fields.read(folder / "class.toml", "class.toml", mistakes)
    title = fields.text("title")
    names = fields.choice("names", NAMES, "pseudonyms")
    teachers = frozenset(each.casefold() for each in fields.texts("teachers"))
    roster = fields.optional("roster")
    invite = fields.optional("invite")
    fields.done()
    if invite is not None and len(invite) < LEAST_INVITE:
        fields.wrong("invite", f"a code has at least {LEAST_INVITE} characters")
    people = read_roster(folder, roster, mistakes)
    for login in sorted(teachers):
        if not LOGIN.fullmatch(login):
            fields.wrong("teachers", no_login(login))
        people.setdefault(login, login)
    if not teachers:
        fields.wrong("teachers", "a class has at least one, who sees the queue and all files")
    if invite is None and not people.keys() - teachers:
        fields.wrong("invite", "there are no students: name a code, or a roster with some")
    tasks = {
        path.stem: _task(folder, path, mistakes)
        for path in sorted((folder / "tasks").glob("*.toml"))
    }
    if not tasks:
        mistakes.append("tasks: there is none: a task is a file such as tasks/first.toml")
    if mistakes:
        raise Mistakes(mistakes)
    return Course(folder, title, names, teachers, people, invite, tasks)


def _task(folder: Path, path: Path, mistakes: list[str]) -> Task:
    fields = Fields.read(path, f"tasks/{path.name}", mistakes)
    if not TASK.fullmatch(path.stem):
        mistakes.append(
            f"tasks/{path.name!r:.80}: a task's name is of small letters, digits, - and _, 40 at "
            "most"
        )
    late = fields.table("late")
    start = fields.optional("start")
    device = fields.text("device", "opencl")
    task = Task(
        name=path.stem,
        title=fields.text("title", path.stem),
        text=fields.text("text", "", LONGEST_TEXT),
        network=_here(folder, fields.text("network", "ece408")),
        data=_here(folder, data) if (data := fields.optional("data")) else None,
        device=fields.accepted("device", lambda: Device.parse(device)) or OPENCL,
        images=fields.whole("images", 1000, 1, 10**6),
        batch=fields.whole("batch", 100, 1, 10**5),
        against=fields.text("against", "direct"),
        seed=fields.whole("seed", 1, 1, 10**9),
        limit=fields.whole("limit", 120, 1, 3600),
        repeats=fields.whole("repeats", 0, 1, 1000) or None,
        points=fields.text("points", "100", 500),
        most_points=fields.whole("most_points", 100, 1, 10**6),
        opens=fields.moment("opens"),
        closes=fields.moment("closes"),
        late=None if late is None else _late(late),
        marks=fields.texts("marks"),
        start=None if start is None else path.parent / start,
    )
    fields.done()
    _check(task, fields)
    return task


def _late(fields: Fields) -> Late:
    late = Late(fields.whole("percent_a_day", None, 0, 100), fields.whole("days", None, 1, 366))
    fields.done()
    return late


def _here(folder: Path, name: str) -> str:
    """A path is meant from the folder of the class."""
    return str((folder / name).absolute()) if (folder / name).exists() else name


def _check(task: Task, fields: Fields) -> None:
    """What one value alone does not show."""
    from tilewright.model.load import describe
    from tilewright.rungs import find

    if task.device.kind not in GPU_KINDS:
        fields.wrong("device", "kernel files run on opencl or cuda, not on cpu")
    try:
        for time in (1, 10**6):
            task.formula.value(dict.fromkeys(IN_FORMULAS, 1) | {"time": time})
    except TilewrightError as error:
        fields.mistakes.append(str(error))
    fields.accepted("network", lambda: describe(task.network))
    for key, names in (("against", (task.against,)), ("marks", task.marks)):
        for name in names:
            rung = fields.accepted(key, partial(find, name))
            vendors = key == "marks" and rung is not None and rung.vendor
            if rung is not None and not vendors and task.device.kind not in rung.devices:
                fields.wrong(key, f"rung {name!r} does not run on {task.device}")
    if task.opens and task.closes and task.opens >= task.closes:
        fields.wrong("closes", "it closes before it opens")
    if task.late is not None and task.closes is None:
        fields.wrong("late", "a rule for late work needs `closes`")
    if task.start is not None and not task.start.is_file():
        fields.wrong("start", f"there is no file {task.start.name}")
