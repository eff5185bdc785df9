"""Consoles: what goes to the terminal, and the bars that say how far something is."""

from __future__ import annotations

import io
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.segment import Segment
from rich.text import Text

from tilewright.terminal import printable

WIDTH = 100  # of what goes to a file or a pipe, and of sentences
WIDEST, NARROWEST = 200, 60
# Between two updates of a bar. Each takes as long as an image of a small network.
UPDATE_SECONDS = 0.1
# A blank between a number and its unit, and what stands for it where lines are broken: all blanks
# that Unicode has are places to break a line for the library that does it.
NUMBER = re.compile(r"(?<=\d) (?=(?:%|ms|µs|s|B|kB|MB|GB|TB/s|GB/s|GFLOP/s|images)(?:\W|$))")
GLUE = "\ue000"  # for private use: nobody's letter
HANGING = 2  # blanks before what is left of a sentence
BLANKS = re.compile(r"[ \t]+$", re.MULTILINE)  # at the end of a line


class Screen(Console):
    """A console that shows what would steer the terminal, and goes on when nobody reads any more.

    A command whose reader has left still writes its files and ends with its own exit code. Without
    colour nothing else is marked, either; in a file or a pipe no line ends in blanks.
    """

    def __init__(self, **settings: Any) -> None:
        if os.environ.get("NO_COLOR"):
            settings["color_system"] = None  # `no_color` alone would leave what is bold
        super().__init__(**settings)

    def on_broken_pipe(self) -> None:
        silence()

    def print(self, *objects: Any, **settings: Any) -> None:
        """Sentences are no wider than 100 columns, on whatever terminal."""
        if all(isinstance(each, str) for each in objects) and not settings.get("soft_wrap"):
            width = settings.setdefault("width", min(self.width, WIDTH))
            objects = tuple(self._hung(each, width) for each in objects)
        if self.is_terminal:
            super().print(*objects, **settings)
            return
        with self.capture() as captured:
            super().print(*objects, **settings)
        try:
            self.file.write(BLANKS.sub("", captured.get()))
            self.file.flush()
        except BrokenPipeError:
            self.on_broken_pipe()

    def _hung(self, sentence: str, width: int) -> Text:
        """Where lines are broken, the rest is set in: notes follow each other without a gap. A
        paragraph, which has a gap before it, is as wide everywhere.
        """
        whole = self.render_str(sentence)
        if sentence.startswith("\n"):
            return whole
        lines: list[Text] = []
        for line in whole.split(allow_blank=True):
            indent = len(line.plain) - len(line.plain.lstrip(" "))
            first, *rest = line.wrap(self, width) or [line]
            lines.append(first)
            if rest:
                inner = " " * (indent + HANGING)
                for part in rest:
                    part.rstrip()
                left = Text(" ").join(rest)
                lines += [Text(inner) + part for part in left.wrap(self, width - len(inner))]
        return Text("\n").join(lines)

    def render_str(self, text: str, **settings: Any) -> Text:
        """Text in cells, titles and lines: spelled out before its width is measured. No line ends
        between a number and its unit.
        """
        return super().render_str(NUMBER.sub(GLUE, printable(text)), **settings)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Whatever else is shown."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            text = text.replace(GLUE, " ")
            yield segment if control else Segment(printable(text), style)


def silence() -> None:
    """From here on standard output leads nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def write(text: str) -> None:
    """A document to standard output, as it is."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        silence()


def output() -> Console:
    """Standard output: as wide as the terminal from 60 to 200 columns, 100 in a file or pipe."""
    # Names and paths are shown as they are: no markup.
    console = Screen(file=sys.stdout, highlight=False, markup=False, emoji=False)
    seen = console.width if console.is_terminal else WIDTH
    console.width = min(max(seen, NARROWEST), WIDEST)
    return console


def text(parts: Iterable[RenderableType]) -> str:
    """What `output` prints into a file, as a string for `print`."""
    file = io.StringIO()
    screen = Screen(
        file=file, width=WIDTH, highlight=False, markup=False, emoji=False, color_system=None,
        force_terminal=False, force_jupyter=False,
    )  # fmt: skip
    for part in parts:
        screen.print(part)
    return file.getvalue().removesuffix("\n")


class _Count(MofNCompleteColumn):
    """3/10; nothing while it is not known of how many."""

    def render(self, task: Task) -> Text:
        return Text() if task.total is None else super().render(task)


@contextmanager
def progress_bar(download: bool = False) -> Iterator[Progress]:
    """A bar on standard error that disappears when done; nothing where nobody looks."""
    counts: tuple[ProgressColumn, ...] = (_Count(), TimeRemainingColumn())
    if download:
        counts = (DownloadColumn(), TransferSpeedColumn())
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), *counts)
    console, hidden = Screen(file=sys.stderr), not sys.stderr.isatty()
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        yield bar


@contextmanager
def progress_line() -> Iterator[Callable[[str, int, int], None]]:
    """A bar that is told what is being done, how much of it is done and how much there is."""
    with progress_bar() as bar:
        task, shown, latest = bar.add_task("getting ready", total=None), "", 0.0

        def tell(doing: str, done: int, of: int) -> None:
            nonlocal shown, latest
            now = time.perf_counter()
            if doing != shown or done >= of or now - latest >= UPDATE_SECONDS:
                shown, latest = doing, now
                bar.update(task, description=doing, completed=done, total=of)

        yield tell
