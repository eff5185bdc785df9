"""A class of any size, most of it bad: does `kernel grade` come to its end, with right verdicts?

    python -m benchmarks.crowd FOLDER --count 200

Writes the submissions into a new folder and has them graded on PoCL by the command, over a tiny
network; then says which verdicts are not what they must be, and how long it took. With --twice two
processes grade the same folder at once, each with a journal of its own, into one history.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tilewright.files import history_file
from tilewright.results.history import History
from tilewright.rungs.own.start import start

NETWORK = {
    "name": "tiny",
    "input": {"shape": [1, 8, 8]},
    "layers": [
        {"type": "convolution", "filters": 2, "kernel": 3, "padding": 1},
        {"type": "relu"},
        {"type": "flatten"},
        {"type": "fully_connected", "outputs": 10},
    ],
}
SUM, STORE = "float sum = bias[filter];", "] = sum;"
ASK = """
static long ask(long number, long a, long b) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b) : "rcx", "r11", "memory");
    return result;
}
"""  # noqa: E501


@dataclass(frozen=True)
class Kind:
    """What a student does, how often among a hundred, and the verdicts that are right of it."""

    name: str
    share: int
    verdicts: tuple[str, ...]
    made: Callable[[str], str]


def _changed(*pairs: tuple[str, str]) -> Callable[[str], str]:
    def made(text: str) -> str:
        for old, new in pairs:
            assert old in text, old
            text = text.replace(old, new, 1)
        return text

    return made


def _asking(call: str) -> Callable[[str], str]:
    return _changed(("*/\n", f"*/\n{ASK}"), (SUM, f"{SUM} sum += 0 * {call};"))


WRONG, STOPPED, REFUSED = ("wrong",), ("stopped",), ("refused",)
SCRATCH = '[scratch]\nmuch = "4000000000000"\n\n[[kernel]]'
KINDS = (
    Kind("right", 5, ("right",), _changed()),
    Kind("slow", 1, ("right",), _changed((SUM, f"{SUM} for (int i = 0; i < 9; i++) sum += 0;"))),
    Kind("loop", 3, STOPPED, _changed((SUM, f"{SUM} volatile int go = 1; while (go) sum += 1;"))),
    Kind("crash", 15, STOPPED, _changed((SUM, "float sum = bias[1L << 44];"))),
    Kind("outside", 8, WRONG, _changed((STORE, f"{STORE} out[-1] = sum;"))),
    Kind("border", 8, WRONG, _changed((" && xx >= 0", ""))),
    Kind("bias", 8, WRONG, _changed((SUM, "float sum = 0;"))),
    Kind("nothing", 4, WRONG, _changed((STORE, "] += 0 * sum;"))),
    Kind("typo", 8, ("does not compile",), _changed((SUM, "float sum = bais[filter]"))),
    Kind("header", 4, REFUSED, _changed(("[[kernel]]", "[[kernel]"))),
    Kind("giant file", 3, ("nothing to judge",), lambda text: text + " " * 2**21),
    Kind(
        "giant scratch", 3, REFUSED,
        _changed(("[[kernel]]", SCRATCH), ('"out"]', '"out", "much"]'),
                 ("float *out)", "float *out, TW_GLOBAL float *much)")),
    ),
    Kind("giant block", 3, REFUSED, _changed(('block = ["TILE_X", "TILE_Y"]', "block = [4096]"))),
    Kind("talks", 3, ("right", "wrong", "stopped"), _asking("ask(1, 1, (long)x)")),
    Kind("forks", 3, STOPPED, _asking("ask(57, 0, 0)")),
    Kind("kills", 3, STOPPED, _asking("ask(62, ask(110, 0, 0), 9)")),
    Kind("late", 2, WRONG, _changed((SUM, "float sum = bias[filter] + (image > 700);"))),
    Kind("half", 4, WRONG, _changed((STORE, "] = as_float(as_uint(sum) & 0xfffff000u);"))),
)  # fmt: skip


def write(folder: Path, count: int) -> dict[str, Kind]:
    """A file for each student, kinds mixed; who is of which."""
    shares = itertools.chain.from_iterable([kind] * kind.share for kind in KINDS)
    every = list(shares)
    students: dict[str, Kind] = {}
    folder.mkdir()
    for number in range(count):
        kind = every[number * 37 % len(every)]
        name = f"s{number:03d}-{kind.name.replace(' ', '-')}"
        (folder / f"{name}.cl").write_text(kind.made(start(f"s{number:03d}", "direct", "dialect")))
        students[name] = kind
    return students


def grade(folder: Path, number: int) -> subprocess.Popen[bytes]:
    network = folder.with_name("tiny.json")
    network.write_text(json.dumps(NETWORK))
    out = folder.with_name(f"{folder.name}-{number}")
    command = [
        *(
            sys.executable,
            "-m",
            "tilewright",
            "kernel",
            "grade",
            str(folder),
            "--net",
            str(network),
        ),
        *("--images", "20", "--batch", "20", "--repeats", "2", "--csv", f"{out}.csv"),
        *("--journal", f"{out}.grading"),
    ]
    with Path(f"{out}.txt").open("wb") as said:
        return subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--twice", action="store_true", help="two processes at once")
    arguments = parser.parse_args()
    students = write(arguments.folder, arguments.count)
    os.environ["XDG_DATA_HOME"] = str(arguments.folder.with_name("kept").absolute())
    start = time.monotonic()
    running = [grade(arguments.folder, number) for number in range(1 + arguments.twice)]
    codes = [each.wait() for each in running]
    print(f"{len(students)} submissions, {time.monotonic() - start:.0f} s, exit codes {codes}")
    wrong = 0
    for number in range(len(running)):
        path = arguments.folder.with_name(f"{arguments.folder.name}-{number}.csv")
        with path.open() as file:
            rows = {row["student"]: row for row in csv.DictReader(file)}
        print(dict(Counter(row["outcome"] for row in rows.values())))
        for student, kind in students.items():
            outcome = rows[student]["outcome"]
            if outcome not in kind.verdicts:
                wrong += 1
                print(f"{student}: {outcome}, must be {' or '.join(kind.verdicts)}")
                print(f"    {rows[student]['reason'][:200]}")
    kept = History(history_file()).entries()
    print(f"{len(kept)} records in the history: {', '.join(each.headline for each in kept)}")
    return 1 if wrong or any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
