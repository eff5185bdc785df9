"""A class to start from."""

from __future__ import annotations

from pathlib import Path

from tilewright.errors import TilewrightError
from tilewright.files import reason
from tilewright.rungs.own.start import start

CLASS = """\
title = "Convolutions, 2026"
names = "pseudonyms"   # on the leaderboard: "names", "pseudonyms", or "own" (only oneself)
teachers = ["teacher"] # logins; they see the queue, all names and all files
# invite = "a-long-code" lets people in who are not in roster.csv, each with a login of their own
"""
ROSTER = """\
login,name
teacher,The Teacher
anna,Anna Example
ben,Ben Example
"""
TASK = """\
title = "First: faster than direct"
text = \"\"\"
Write a convolution kernel that is **right** and faster than `direct`.
Start from the file below; `tilewright kernel check FILE` tells you what is wrong with yours.
\"\"\"
network = "ece408"     # or a file, from the folder of the class on
device = "opencl"      # or "cuda", or one of several as in "cuda:1"
images = 100           # whose answers are looked at; of 10000 also the first 100 and 1,000
batch = 10             # images in a timed call; a GPU takes more
against = "direct"     # all are timed in turns with it
limit = 120            # seconds for the proof
repeats = 5            # rounds of timing; without it, as many as the noise of the machine needs
points = "min(100, 25 * baseline // time)"  # as in `tilewright kernel grade --points`
most_points = 100
marks = ["direct", "shared", "tuned"]       # times of rungs that stand in the leaderboard
start = "first.cl"     # what students begin with
# opens = "2026-11-16T08:00:00+01:00"
# closes = "2026-12-01T18:00:00+01:00"
# late = { percent_a_day = 10, days = 3 }
"""


def write(folder: Path) -> list[str]:
    """The names of the files of a new class; an error if the folder is there."""
    made = {
        "class.toml": CLASS,
        "roster.csv": ROSTER,
        "tasks/first.toml": TASK,
        "tasks/first.cl": start("first", "direct", "dialect"),
    }
    try:
        folder.mkdir(parents=True)
        (folder / "tasks").mkdir()
        for name, text in made.items():
            (folder / name).write_text(text)
    except FileExistsError as error:
        raise TilewrightError(f"{folder} is there already, and stays as it is") from error
    except OSError as error:
        raise TilewrightError(f"cannot write {folder}: {reason(error)}") from error
    return list(made)
